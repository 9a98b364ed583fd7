from octavo.core.layer import *  # noqa
from octavo.recipe.plan import Decision  # noqa
