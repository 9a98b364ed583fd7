from octavo.results.benchmark import *  # noqa
