"""The role of every parameter of the trees in `role_models`, written by hand from what their layers do.

A line is a path, in which `*` stands for one part between dots and `{a,b}` for either of two, and what is expected:
`vector`, `table`, or `matrix` with how many matrices it is and the rows (outputs) and columns (inputs) of each of
them, and `guessed` where neither the module nor the name can tell. Every parameter has exactly one line.
"""

TABLES = {
    "linen transformer": """
        params.tokens.embedding                                     table
        params.position_embeddings.embedding                        vector
        params.pos_embed                                            vector
        params.*.{LayerNorm_0,LayerNorm_1}.{scale,bias}             vector
        params.*.attention.{query,key,value}.kernel                 matrix 1 of 24 x 32
        params.*.attention.{query,key,value}.bias                   vector
        params.*.attention.out.kernel                               matrix 1 of 32 x 24
        params.*.attention.out.bias                                 vector
        params.*.up.kernel                                          matrix 1 of 80 x 32
        params.*.down.kernel                                        matrix 1 of 32 x 80
        params.*.{up,down}.bias                                     vector
        params.ln_f.{scale,bias}                                    vector
        params.lm_head.kernel                                       table
        params.lm_head.bias                                         vector
    """,
    "linen transformer, tied": """
        params.tokens.embedding                                     table
        params.position_embeddings.embedding                        vector
        params.pos_embed                                            vector
        params.*.{LayerNorm_0,LayerNorm_1}.{scale,bias}             vector
        params.*.attention.{query,key,value}.kernel                 matrix 1 of 24 x 32
        params.*.attention.{query,key,value}.bias                   vector
        params.*.attention.out.kernel                               matrix 1 of 32 x 24
        params.*.attention.out.bias                                 vector
        params.*.up.kernel                                          matrix 1 of 80 x 32
        params.*.down.kernel                                        matrix 1 of 32 x 80
        params.*.{up,down}.bias                                     vector
        params.ln_f.{scale,bias}                                    vector
    """,
    "linen scanned": """
        params.Embed_0.embedding                                    table
        params.layers.{LayerNorm_0,LayerNorm_1}.{scale,bias}        vector
        params.layers.attention.{query,key,value}.kernel            matrix 3 of 24 x 32
        params.layers.attention.{query,key,value}.bias              vector
        params.layers.attention.out.kernel                          matrix 3 of 32 x 24
        params.layers.attention.out.bias                            vector
        params.layers.up.kernel                                     matrix 3 of 80 x 32
        params.layers.down.kernel                                   matrix 3 of 32 x 80
        params.layers.{up,down}.bias                                vector
        params.experts.kernel                                       matrix 6 of 80 x 32
        params.experts.bias                                         vector
        params.moe_w1                                               matrix 6 of 48 x 80
        params.head.kernel                                          matrix 1 of 32 x 48
        params.head.bias                                            vector
    """,
    "linen scanned bare": """
        params.ScanBareLayer_0.mlp.kernel                           matrix 3 of 32 x 32
        params.query.kernel                                         matrix 1 of 24 x 32
        params.query.bias                                           vector
        params.out.kernel                                           matrix 1 of 32 x 24
        params.out.bias                                             vector
        params.key.kernel                                           matrix 1 of 24 x 32
        params.split.kernel                                         matrix 1 of 24 x 24
        params.split.bias                                           vector
        params.mixed.kernel                                         vector guessed
    """,
    "linen ResNet": """
        batch_stats.BatchNorm_0.{mean,var}                          vector
        params.Conv_0.kernel                                        matrix 1 of 8 x 147
        params.BatchNorm_0.{scale,bias}                             vector
        params.Conv_1.kernel                                        matrix 1 of 16 x 36
        params.Conv_1.bias                                          vector
        params.GroupNorm_0.{scale,bias}                             vector
        params.depthwise.{kernel,bias}                              vector
        params.ConvTranspose_0.kernel                               matrix 1 of 12 x 256
        params.ConvTranspose_0.bias                                 vector
        params.layer_scale                                          vector
        params.Dense_0.kernel                                       matrix 1 of 10 x 12
        params.Dense_0.bias                                         vector
    """,
    "linen vision": """
        params.embedding.kernel                                     matrix 1 of 32 x 48
        params.embedding.bias                                       vector
        params.{cls,pos_embedding}                                  vector
        params.head.kernel                                          matrix 1 of 10 x 32
        params.head.bias                                            vector
        params.value.{kernel,bias}                                  vector
    """,
    "linen recurrent": """
        params.OptimizedLSTMCell_0.{ii,if,ig,io}.kernel             matrix 1 of 10 x 32
        params.OptimizedLSTMCell_0.{hi,hf,hg,ho}.kernel             matrix 1 of 10 x 10
        params.OptimizedLSTMCell_0.{hi,hf,hg,ho}.bias               vector
        params.LSTMCell_0.{ii,if,ig,io}.kernel                      matrix 1 of 12 x 10
        params.LSTMCell_0.{hi,hf,hg,ho}.kernel                      matrix 1 of 12 x 12
        params.LSTMCell_0.{hi,hf,hg,ho}.bias                        vector
        params.GRUCell_0.{ir,iz,in}.kernel                          matrix 1 of 14 x 12
        params.GRUCell_0.{hr,hz,hn}.kernel                          matrix 1 of 14 x 14
        params.GRUCell_0.{ir,iz,in,hn}.bias                         vector
    """,
    "nnx transformer": """
        embed.embedding                                             table
        pos_embed                                                   vector
        blocks.*.norm.scale                                         vector
        blocks.*.attention.{query,key,value}.kernel                 matrix 1 of 24 x 32
        blocks.*.attention.{query,key,value}.bias                   vector
        blocks.*.attention.out.kernel                               matrix 1 of 32 x 24
        blocks.*.attention.out.bias                                 vector
        blocks.*.mlp.layers.0.kernel                                matrix 1 of 80 x 32
        blocks.*.mlp.layers.2.kernel                                matrix 1 of 32 x 80
        blocks.*.mlp.layers.*.bias                                  vector
        readout.kernel                                              table
        readout.bias                                                vector
    """,
    "nnx scanned": """
        embed.embedding                                             table
        layers.norm.scale                                           vector
        layers.attention.{query,key,value}.kernel                   matrix 3 of 24 x 32
        layers.attention.{query,key,value}.bias                     vector
        layers.attention.out.kernel                                 matrix 3 of 32 x 24
        layers.attention.out.bias                                   vector
        layers.mlp.layers.0.kernel                                  matrix 3 of 80 x 32
        layers.mlp.layers.2.kernel                                  matrix 3 of 32 x 80
        layers.mlp.layers.*.bias                                    vector
        head.kernel                                                 matrix 1 of 10 x 32
        head.bias                                                   vector
    """,
    "nnx ResNet": """
        conv.kernel                                                 matrix 1 of 8 x 27
        conv.bias                                                   vector
        bn.{scale,bias}                                             vector
        up.kernel                                                   matrix 1 of 12 x 128
        up.bias                                                     vector
        linear.kernel                                               matrix 1 of 10 x 12
        linear.bias                                                 vector
    """,
    "nnx others": """
        lstm.dense_i.kernel                                         matrix 4 of 10 x 16
        lstm.dense_h.kernel                                         matrix 4 of 10 x 10
        lstm.dense_h.bias                                           vector
        plain.{ii,if_,ig,io}.kernel                                 matrix 1 of 12 x 16
        plain.{hi,hf,hg,ho}.kernel                                  matrix 1 of 12 x 12
        plain.{hi,hf,hg,ho}.bias                                    vector
        gru.dense_i.kernel                                          matrix 3 of 10 x 16
        gru.dense_h.kernel                                          matrix 3 of 10 x 10
        gru.dense_i.bias                                            vector
        general.kernel                                              matrix 1 of 24 x 16
        general.bias                                                vector
        einsum.kernel                                               vector guessed
        lora.lora_a                                                 matrix 1 of 2 x 16
        lora.lora_b                                                 matrix 1 of 8 x 2
        mixing                                                      matrix 1 of 4 x 3 guessed
        temperature                                                 vector
    """,
    "nnx normed": """
        normed.layer_instance.kernel                                matrix 1 of 5 x 4
        normed.layer_instance.bias                                  vector
    """,
    "equinox": """
        words.weight                                                table
        positions.weight                                            vector
        patches.weight                                              matrix 1 of 32 x 48
        patches.bias                                                vector
        norm.{weight,bias}                                          vector
        attention.{query_proj,key_proj,value_proj}.weight           matrix 1 of 24 x 32
        attention.output_proj.weight                                matrix 1 of 32 x 24
        cell.weight_ih                                              matrix 4 of 10 x 32
        cell.weight_hh                                              matrix 4 of 10 x 10
        cell.bias                                                   vector
        layers.0.weight                                             matrix 1 of 80 x 32
        layers.1.weight                                             matrix 1 of 32 x 80
        layers.*.bias                                               vector
        stacked.weight                                              matrix 6 of 80 x 32
        stacked.bias                                                vector
        cls_token                                                   vector
        mixing                                                      matrix 1 of 12 x 7 guessed
        head.weight                                                 table
        head.bias                                                   vector
    """,
    "haiku": """
        transformer.positional_embeddings                           vector
        transformer.embed.embeddings                                table
        transformer.block_0.layer_norm.{scale,offset}               vector
        transformer.block_0.multi_head_attention.query.w            matrix 1 of 24 x 32
        transformer.block_0.multi_head_attention.linear.w           matrix 1 of 32 x 24
        transformer.block_0.multi_head_attention.{query,linear}.b   vector
        transformer.block_0.mlp.linear_0.w                          matrix 1 of 80 x 32
        transformer.block_0.mlp.linear_0.b                          vector
        __layer_stack_no_per_layer.block.linear.w                   matrix 6 of 80 x 32
        __layer_stack_no_per_layer.block.linear.b                   vector
        __layer_stack_no_per_layer.block.layer_norm.{scale,offset}  vector
        conv2_d.w                                                   matrix 1 of 16 x 72
        conv2_d.b                                                   vector
        batch_norm.{scale,offset}                                   vector
        lstm.linear.w                                               matrix 4 of 10 x 26
        lstm.linear.b                                               vector
        gru.w_i                                                     matrix 3 of 10 x 16
        gru.w_h                                                     matrix 3 of 10 x 10
        gru.b                                                       vector
        head.logits.w                                               table
    """,
}
