from octavo.results.tuning import *  # noqa
