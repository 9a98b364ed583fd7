// Placeholder until the tiles are written: VNNI's kernels under AMX's name are not a table.
