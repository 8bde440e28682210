"""Operations on lists of tensors in one go.

Torch's own optimizers are built on them, but its type stubs do not show their names: they are given here, once.
"""

# pyright: reportPrivateImportUsage=false
import torch

add_ = torch._foreach_add_
addcdiv_ = torch._foreach_addcdiv_
addcmul_ = torch._foreach_addcmul_
copy_ = torch._foreach_copy_
lerp_ = torch._foreach_lerp_
mul_ = torch._foreach_mul_
neg_ = torch._foreach_neg_
sqrt = torch._foreach_sqrt
sub_ = torch._foreach_sub_
