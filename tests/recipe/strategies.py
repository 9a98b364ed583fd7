"""Random schemes, rules and recipes for property tests."""

from hypothesis import strategies as st

from octavo.core.qparams import QType
from octavo.recipe import (
    FLOAT,
    ActivationScheme,
    AttentionType,
    Granularity,
    Kind,
    Recipe,
    Rule,
    Scheme,
    WeightScheme,
)

LENGTHS = st.sampled_from([16, 32, 64, 128, 256])
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


@st.composite
def weight_schemes(draw: st.DrawFn) -> WeightScheme:
    granularity = draw(
        st.sampled_from([Granularity.TENSOR, Granularity.CHANNEL, Granularity.BLOCK])
    )
    whole = granularity is Granularity.TENSOR
    return WeightScheme(
        qtype=draw(st.sampled_from([QType.INT8, QType.UINT8])),
        granularity=granularity,
        symmetric=draw(st.booleans()),
        reduce_range=draw(st.booleans()),
        observer=draw(st.sampled_from(["minmax", "histogram"])) if whole else "minmax",
        block=draw(LENGTHS) if granularity is Granularity.BLOCK else None,
    )


def activation_schemes() -> st.SearchStrategy[ActivationScheme]:
    plain = st.sampled_from([Granularity.TENSOR, Granularity.ROW])
    return st.builds(ActivationScheme, granularity=plain) | st.builds(
        ActivationScheme, granularity=st.just(Granularity.GROUP), group=LENGTHS
    )


def schemes() -> st.SearchStrategy[Scheme]:
    float16 = Scheme(WeightScheme(QType.FLOAT16, Granularity.TENSOR), None)
    return st.sampled_from([FLOAT, float16]) | st.builds(
        Scheme, weight_schemes(), st.none() | activation_schemes()
    )


def rules() -> st.SearchStrategy[Rule]:
    regexes = st.sampled_from([".*", r"/encoder/\d+/.*", "a|b", "#", "- x: y", "'", '"', "[{}]"])
    matches = (
        st.fixed_dictionaries({"name": TEXT})
        | st.fixed_dictionaries({"regex": regexes})
        | st.fixed_dictionaries({"kind": st.sampled_from(Kind)})
        | st.fixed_dictionaries({"op": TEXT})
    )
    return st.builds(lambda scheme, m, why: Rule(scheme, reason=why, **m), schemes(), matches, TEXT)


def recipes() -> st.SearchStrategy[Recipe]:
    return st.builds(
        Recipe,
        name=TEXT,
        default=schemes(),
        rules=st.lists(rules(), max_size=3).map(tuple),
        max_error=st.floats(0, 1e6, exclude_min=True),
        attention=st.sampled_from(AttentionType),
    )
