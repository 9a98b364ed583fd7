from octavo.results.accumulate import *  # noqa
