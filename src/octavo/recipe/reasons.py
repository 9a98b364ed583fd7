from octavo.results.names import *  # noqa
