from octavo.recipe.recipe import *  # noqa
