"""Every integer grid that weights may be put on."""

import pytest

from octavo.core.qparams import Grid, QType

GRIDS = {
    f"{qtype.value}-{'symmetric' if symmetric else 'affine'}{'-7bit' if reduce else ''}": Grid.of(
        qtype, symmetric=symmetric, reduce_range=reduce
    )
    for qtype in (QType.INT8, QType.UINT8)
    for symmetric in (True, False)
    for reduce in (False, True)
}
every_grid = pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
