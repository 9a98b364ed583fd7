from octavo.results.report import *  # noqa
