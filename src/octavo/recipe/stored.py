from octavo.results.stored import *  # noqa
