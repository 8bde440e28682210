"""The role of every parameter of the models in `role_models`, written by hand from what their layers do.

A line is a name, in which `*` stands for one part between dots and `{a,b}` for either of two, and what is expected:
`vector`, `table`, or `matrix` with how many matrices it is and the rows (outputs) and columns (inputs) of each of
them, and `guessed` where neither the module nor the name can tell. Every parameter has exactly one line.
"""

TABLES = {
    "GPT-2": """
        transformer.wte.weight                              table
        transformer.wpe.weight                              vector
        transformer.h.*.{ln_1,ln_2}.{weight,bias}           vector
        transformer.h.*.attn.c_attn.weight                  matrix 3 of 32 x 32
        transformer.h.*.attn.c_proj.weight                  matrix 1 of 32 x 32
        transformer.h.*.mlp.c_fc.weight                     matrix 1 of 80 x 32
        transformer.h.*.mlp.c_proj.weight                   matrix 1 of 32 x 80
        transformer.h.*.{attn,mlp}.*.bias                   vector
        transformer.ln_f.{weight,bias}                      vector
    """,
    "GPT-2 untied": """
        transformer.wte.weight                              table
        transformer.wpe.weight                              vector
        transformer.h.*.{ln_1,ln_2}.{weight,bias}           vector
        transformer.h.*.attn.c_attn.weight                  matrix 3 of 32 x 32
        transformer.h.*.attn.c_proj.weight                  matrix 1 of 32 x 32
        transformer.h.*.mlp.c_fc.weight                     matrix 1 of 80 x 32
        transformer.h.*.mlp.c_proj.weight                   matrix 1 of 32 x 80
        transformer.h.*.{attn,mlp}.*.bias                   vector
        transformer.ln_f.{weight,bias}                      vector
        lm_head.weight                                      table
    """,
    "BERT classifier": """
        bert.embeddings.word_embeddings.weight              table
        bert.embeddings.position_embeddings.weight          vector
        bert.embeddings.token_type_embeddings.weight        table
        bert.embeddings.LayerNorm.{weight,bias}             vector
        bert.encoder.layer.*.attention.self.{query,key,value}.weight  matrix 1 of 32 x 32
        bert.encoder.layer.*.attention.self.{query,key,value}.bias    vector
        bert.encoder.layer.*.attention.output.dense.weight  matrix 1 of 32 x 32
        bert.encoder.layer.*.attention.output.dense.bias    vector
        bert.encoder.layer.*.attention.output.LayerNorm.{weight,bias} vector
        bert.encoder.layer.*.intermediate.dense.weight      matrix 1 of 80 x 32
        bert.encoder.layer.*.intermediate.dense.bias        vector
        bert.encoder.layer.*.output.dense.weight            matrix 1 of 32 x 80
        bert.encoder.layer.*.output.dense.bias              vector
        bert.encoder.layer.*.output.LayerNorm.{weight,bias} vector
        bert.pooler.dense.weight                            matrix 1 of 32 x 32
        bert.pooler.dense.bias                              vector
        classifier.weight                                   matrix 1 of 2 x 32
        classifier.bias                                     vector
    """,
    "BERT masked": """
        bert.embeddings.word_embeddings.weight              table
        bert.embeddings.position_embeddings.weight          vector
        bert.embeddings.token_type_embeddings.weight        table
        bert.embeddings.LayerNorm.{weight,bias}             vector
        bert.encoder.layer.*.attention.self.{query,key,value}.weight  matrix 1 of 32 x 32
        bert.encoder.layer.*.attention.self.{query,key,value}.bias    vector
        bert.encoder.layer.*.attention.output.dense.weight  matrix 1 of 32 x 32
        bert.encoder.layer.*.attention.output.dense.bias    vector
        bert.encoder.layer.*.attention.output.LayerNorm.{weight,bias} vector
        bert.encoder.layer.*.intermediate.dense.weight      matrix 1 of 80 x 32
        bert.encoder.layer.*.intermediate.dense.bias        vector
        bert.encoder.layer.*.output.dense.weight            matrix 1 of 32 x 80
        bert.encoder.layer.*.output.dense.bias              vector
        bert.encoder.layer.*.output.LayerNorm.{weight,bias} vector
        cls.predictions.bias                                vector
        cls.predictions.transform.dense.weight              matrix 1 of 32 x 32
        cls.predictions.transform.dense.bias                vector
        cls.predictions.transform.LayerNorm.{weight,bias}   vector
    """,
    "ViT": """
        vit.embeddings.cls_token                            vector
        vit.embeddings.position_embeddings                  vector
        vit.embeddings.patch_embeddings.projection.weight   matrix 1 of 32 x 48
        vit.embeddings.patch_embeddings.projection.bias     vector
        vit.layers.*.attention.{q_proj,k_proj,v_proj,o_proj}.weight   matrix 1 of 32 x 32
        vit.layers.*.attention.{q_proj,k_proj,v_proj,o_proj}.bias     vector
        vit.layers.*.{layernorm_before,layernorm_after}.{weight,bias} vector
        vit.layers.*.mlp.fc1.weight                         matrix 1 of 80 x 32
        vit.layers.*.mlp.fc2.weight                         matrix 1 of 32 x 80
        vit.layers.*.mlp.{fc1,fc2}.bias                     vector
        vit.layernorm.{weight,bias}                         vector
        classifier.weight                                   matrix 1 of 5 x 32
        classifier.bias                                     vector
    """,
    "T5": """
        shared.weight                                       table
        {encoder,decoder}.block.*.layer.*.{SelfAttention,EncDecAttention}.{q,k,v}.weight  matrix 1 of 24 x 32
        {encoder,decoder}.block.*.layer.*.{SelfAttention,EncDecAttention}.o.weight        matrix 1 of 32 x 24
        {encoder,decoder}.block.*.layer.*.SelfAttention.relative_attention_bias.weight    vector
        {encoder,decoder}.block.*.layer.*.DenseReluDense.wi.weight    matrix 1 of 80 x 32
        {encoder,decoder}.block.*.layer.*.DenseReluDense.wo.weight    matrix 1 of 32 x 80
        {encoder,decoder}.block.*.layer.*.layer_norm.weight vector
        {encoder,decoder}.final_layer_norm.weight           vector
    """,
    "Mixtral": """
        model.embed_tokens.weight                           table
        model.layers.*.self_attn.{q_proj,o_proj}.weight     matrix 1 of 32 x 32
        model.layers.*.self_attn.{k_proj,v_proj}.weight     matrix 1 of 16 x 32
        model.layers.*.mlp.gate.weight                      matrix 1 of 3 x 32
        model.layers.*.mlp.experts.gate_up_proj             matrix 6 of 40 x 32
        model.layers.*.mlp.experts.down_proj                matrix 3 of 32 x 40
        model.layers.*.{input_layernorm,post_attention_layernorm}.weight vector
        model.norm.weight                                   vector
        lm_head.weight                                      table
    """,
    "ResNet": """
        conv1.weight                                        matrix 1 of 8 x 147
        bn1.{weight,bias}                                   vector
        layer1.0.conv1.weight                               matrix 1 of 16 x 72
        layer1.0.conv2.weight                               matrix 2 of 8 x 72
        layer1.0.downsample.0.weight                        matrix 1 of 16 x 8
        layer2.0.conv1.weight                               matrix 1 of 24 x 144
        layer2.0.conv2.weight                               matrix 2 of 12 x 108
        layer2.0.downsample.0.weight                        matrix 1 of 24 x 16
        {layer1,layer2}.0.{bn1,bn2}.{weight,bias}           vector
        {layer1,layer2}.0.downsample.1.{weight,bias}        vector
        depthwise.{weight,bias}                             vector
        scale                                               vector
        fc.weight                                           matrix 1 of 10 x 24
        fc.bias                                             vector
    """,
    "U-Net": """
        time_mlp.0.weight                                   matrix 1 of 48 x 16
        time_mlp.2.weight                                   matrix 1 of 48 x 48
        time_mlp.*.bias                                     vector
        label_emb.weight                                    table
        down.0.weight                                       matrix 1 of 16 x 27
        down.1.weight                                       matrix 1 of 32 x 144
        down.*.bias                                         vector
        norm.{weight,bias}                                  vector
        to_qkv.weight                                       matrix 3 of 24 x 32
        to_out.weight                                       matrix 1 of 32 x 24
        to_out.bias                                         vector
        up.weight                                           matrix 1 of 32 x 256
        up.bias                                             vector
        null_token                                          vector
        out.{weight,bias}                                   vector
    """,
    "LSTM": """
        encoder.weight                                      table
        lstm.{weight_ih_l0,weight_ih_l0_reverse}            matrix 4 of 20 x 24
        lstm.{weight_ih_l1,weight_ih_l1_reverse}            matrix 4 of 20 x 24
        lstm.{weight_hh_l0,weight_hh_l0_reverse}            matrix 4 of 20 x 12
        lstm.{weight_hh_l1,weight_hh_l1_reverse}            matrix 4 of 20 x 12
        lstm.{weight_hr_l0,weight_hr_l0_reverse}            matrix 1 of 12 x 20
        lstm.{weight_hr_l1,weight_hr_l1_reverse}            matrix 1 of 12 x 20
        lstm.{bias_ih_l0,bias_hh_l0,bias_ih_l0_reverse,bias_hh_l0_reverse}  vector
        lstm.{bias_ih_l1,bias_hh_l1,bias_ih_l1_reverse,bias_hh_l1_reverse}  vector
        gru.weight_ih_l0                                    matrix 3 of 20 x 24
        gru.weight_hh_l0                                    matrix 3 of 20 x 20
        gru.{bias_ih_l0,bias_hh_l0}                         vector
        cell.weight_ih                                      matrix 4 of 10 x 20
        cell.weight_hh                                      matrix 4 of 10 x 10
        cell.{bias_ih,bias_hh}                              vector
        attention.in_proj_weight                            matrix 3 of 10 x 10
        attention.{in_proj_bias,bias_k,bias_v}              vector
        cross.q_proj_weight                                 matrix 1 of 10 x 10
        cross.k_proj_weight                                 matrix 1 of 10 x 6
        cross.v_proj_weight                                 matrix 1 of 10 x 8
        cross.in_proj_bias                                  vector
        {attention,cross}.out_proj.weight                   matrix 1 of 10 x 10
        {attention,cross}.out_proj.bias                     vector
        decoder.weight                                      table
        decoder.bias                                        vector
    """,
    "graph": """
        lin.weight                                          matrix 1 of 24 x 16
        {att_src,att_dst}                                   vector guessed
        bias                                                vector
        theta                                               vector guessed
        mixing                                              matrix 1 of 7 x 12 guessed
        norm.{weight,bias}                                  vector
        readout.{weight,bias}                               vector
    """,
    "mixture": """
        router.weight                                       matrix 1 of 3 x 16
        router.bias                                         vector
        experts.w1                                          matrix 3 of 16 x 40
        experts.w2                                          matrix 3 of 40 x 16
        experts.b1                                          vector
        mlp.0.weight                                        matrix 1 of 40 x 16
        mlp.1.weight                                        matrix 1 of 16 x 40
        mlp.*.bias                                          vector
    """,
    "LoRA": """
        transformer.wte.base_layer.weight                   table
        transformer.wte.lora_embedding_A.default            table
        transformer.wte.lora_embedding_B.default            matrix 1 of 32 x 4
        transformer.wpe.weight                              vector
        transformer.h.*.{ln_1,ln_2}.{weight,bias}           vector
        transformer.h.*.attn.c_attn.base_layer.weight       matrix 3 of 32 x 32
        transformer.h.*.attn.c_attn.lora_A.default.weight   matrix 1 of 4 x 32
        transformer.h.*.attn.c_attn.lora_B.default.weight   matrix 3 of 32 x 4
        transformer.h.*.attn.c_proj.base_layer.weight       matrix 1 of 32 x 32
        transformer.h.*.attn.c_proj.lora_A.default.weight   vector
        transformer.h.*.attn.c_proj.lora_B.default.weight   vector
        transformer.h.*.attn.*.lora_magnitude_vector.default vector
        transformer.h.*.attn.*.base_layer.bias              vector
        transformer.h.*.mlp.c_fc.weight                     matrix 1 of 80 x 32
        transformer.h.*.mlp.c_proj.weight                   matrix 1 of 32 x 80
        transformer.h.*.mlp.*.bias                          vector
        transformer.ln_f.{weight,bias}                      vector
        lm_head.weight                                      table
    """,
    "parametrised": """
        normed.parametrizations.weight.original0            vector
        normed.parametrizations.weight.original1            matrix 1 of 24 x 16
        normed_conv.parametrizations.weight.original0       vector
        normed_conv.parametrizations.weight.original1       matrix 1 of 8 x 18
        bounded.parametrizations.weight.original            matrix 1 of 12 x 24
        rotation.parametrizations.weight.original           vector guessed
        symmetric.parametrizations.weight.original          matrix 1 of 12 x 12 guessed
        {normed,normed_conv,bounded,rotation,symmetric}.bias vector
        gates.weight_ih_l0                                  matrix 3 of 5 x 12
        gates.parametrizations.weight_hh_l0.original0       vector
        gates.parametrizations.weight_hh_l0.original1       matrix 3 of 5 x 5
        gates.{bias_ih_l0,bias_hh_l0}                       vector
    """,
    "vision": """
        {cls_token,register_tokens,pos_embed}               vector
        relative_position_bias_table                        vector
        rope.weight                                         vector
        patch_embed.weight                                  matrix 1 of 32 x 48
        qkv.weight                                          matrix 3 of 32 x 32
        qkv_proj.weight                                     matrix 1 of 64 x 32 guessed
        kv_proj.weight                                      matrix 2 of 24 x 32
        gate_up_proj.weight                                 matrix 2 of 40 x 32
        proj.weight                                         matrix 1 of 32 x 32
        {ls1,logit_scale}                                   vector
        bilinear.weight                                     matrix 5 of 6 x 7
        head.weight                                         matrix 1 of 10 x 32
        {patch_embed,qkv,qkv_proj,kv_proj,gate_up_proj,proj,bilinear,head}.bias  vector
    """,
    "shared": """
        first.weight                                        matrix 1 of 16 x 16
        first.bias                                          vector
        output.weight                                       table
    """,
    "bytes": """
        embedding.weight                                    table
        layers.*.weight                                     matrix 1 of 64 x 64
        last.weight                                         table guessed
        layers.*.bias                                       vector
        last.bias                                           vector
    """,
}
