def accuracy(session):
    return 0.9


def fails(session):
    raise ValueError("the labels are gone")


def not_finite(session):
    return float("nan")


def no_number(session):
    return "high"


def unnamed(session):
    return {"f1": 0.9}


def slow(session):
    import pathlib
    import time

    pathlib.Path("begun").touch()
    time.sleep(1)
    return 0.9


def float_only(session):
    said = session.get_modelmeta().custom_metadata_map
    return float("octavo.version" not in said)


number = 3
