"""Base learners, one file each: what an expert does with the gradients of its block."""

from samuel.online.bases.adadelta import Adadelta
from samuel.online.bases.adagrad import Adagrad, DiscountedAdagrad
from samuel.online.bases.adagrad_full import AdagradFull
from samuel.online.bases.adam import Adam
from samuel.online.bases.base import Base, Group, Stepped
from samuel.online.bases.ogd import OGD
from samuel.online.bases.rmsprop import RMSprop
from samuel.online.bases.scale_free import ScaleFreeOGD

__all__ = [
    "OGD",
    "Adadelta",
    "Adagrad",
    "AdagradFull",
    "Adam",
    "Base",
    "DiscountedAdagrad",
    "Group",
    "RMSprop",
    "ScaleFreeOGD",
    "Stepped",
]
