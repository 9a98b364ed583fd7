from octavo.results.comparison import *  # noqa
