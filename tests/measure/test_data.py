"""Data from files and from data loaders, and the accuracy of a model on it."""

from __future__ import annotations

import importlib.util
import json
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from octavo.errors import InputDataError, OptionError
from octavo.measure.accuracy import accuracy, outputs
from octavo.measure.data import Dataset
from octavo.measure.readers import read_data
from octavo.tune.inc.metrics import metric

X = np.arange(30, dtype=np.float32).reshape(10, 3)
Y = np.arange(10) % 3


def npz(folder: Path, **arrays: Any) -> Path:
    path = folder / "data.npz"
    np.savez(path, **arrays)
    return path


def lines(folder: Path, *runs: object, name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(run) + "\n" for run in runs), encoding="utf-8")
    return path


def table(folder: Path, row_group_size: int = 4, **columns: Any) -> Path:
    path = folder / "data.parquet"
    parquet.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def text(folder: Path, content: str) -> Path:
    path = folder / "data.csv"
    path.write_text(content, encoding="utf-8")
    return path


def together(data: Dataset, name: str) -> Any:
    return np.concatenate([feed[name] for feed, _ in data])


@pytest.mark.parametrize(("size", "lengths"), [(1, [1] * 10), (4, [4, 4, 2]), (32, [10])])
def test_npz_has_stacked_samples(tmp_path: Path, size: int, lengths: list[int]) -> None:
    data = read_data(npz(tmp_path, x=X, label=Y), batch_size=size)
    for _ in range(2):
        assert [len(label) for _, label in data] == lengths
        assert all(list(feed) == ["x"] for feed, _ in data)
        np.testing.assert_array_equal(together(data, "x"), X)
        np.testing.assert_array_equal(np.concatenate([label for _, label in data]), Y)
    assert data.feeds(1)[0]["x"].dtype == np.float32
    assert len(data.feeds(2)) == min(2, len(lengths))
    again = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(together(again, "x"), X)


def test_the_label_is_what_is_asked_for(tmp_path: Path) -> None:
    path = npz(tmp_path, x=X, y=Y)
    assert [sorted(feed) for feed, label in read_data(path) if label is None] == [["x", "y"]]
    ((feed, label),) = read_data(path, label="y")
    assert list(feed) == ["x"]
    np.testing.assert_array_equal(label, Y)
    with pytest.raises(InputDataError, match="no label 'z'; it has x, y"):
        read_data(path, label="z")
    with pytest.raises(InputDataError, match="label and labels are both there"):
        read_data(npz(tmp_path, label=Y, labels=Y))
    ((feed, label),) = read_data(path.with_name("data.npz"), label="labels")
    assert list(feed) == ["label"]


def test_npz_of_texts_and_of_unequal_arrays(tmp_path: Path) -> None:
    texts = npz(tmp_path, q=np.array(["a", "bc"]), labels=np.array(["x", "y"]))
    ((feed, label),) = read_data(texts)
    assert (feed["q"].dtype, feed["q"].tolist(), label.tolist()) == (
        object,
        ["a", "bc"],
        ["x", "y"],
    )
    for named, arrays in [
        (r"x \[10, 3\], label \[9\]", {"x": X, "label": Y[:9]}),
        (r"x \[10, 3\], n \[\]", {"x": X, "n": np.array(10)}),
        ("data.npz: cannot be read", {"x": np.array([{}], dtype=object)}),  # would run code
        ("holds no samples", {"x": X[:0]}),
    ]:
        with pytest.raises(InputDataError, match=named):
            read_data(npz(tmp_path, **arrays))


def test_jsonl_has_a_run_a_line(tmp_path: Path) -> None:
    path = lines(
        tmp_path,
        {"ids": [[1, 2, 3]], "q": ["what"], "label": "the answer"},
        {"ids": [[1], [2]], "q": ["a", "b"], "label": [0, 1]},
        {"ids": [[1], [2]], "q": ["a", "b"], "label": [["a", "b"], ["c"]]},
        {"ids": [[1]], "q": ["a"], "label": float("nan")},
    )
    first, second, third, fourth = read_data(path, batch_size=7)  # which does not matter
    assert first[0]["ids"].shape == (1, 3)
    assert first[0]["q"].tolist() == ["what"]
    assert first[1] == "the answer"
    assert second[1].tolist() == [0, 1]
    assert third[1] == [["a", "b"], ["c"]]
    assert math.isnan(fourth[1])


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"{", "Expecting property name"),
        (b"[1]", "a line is a JSON object, and this is a list"),
        (b'{"x": [[1, 2], [3]]}', ".*inhomogeneous"),
        (b'{"x": {"a": 1}}', "a dict"),
        (b'{"label": 1, "labels": 2}', "label and labels are both there"),
        (b'{"x": "\xff"}', "'utf-8' codec can't decode"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: bytes, named: str) -> None:
    path = lines(tmp_path, {"x": [1.0]})
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(InputDataError, match=f"data.jsonl, line 2: {named}"):
        list(read_data(path))


def test_csv_has_a_row_a_sample(tmp_path: Path) -> None:
    data = read_data(
        text(tmp_path, "a,b,name,label\n1,0.5,x,1\n2,NaN,y,\n3,2.5,z,0\n"), batch_size=2
    )
    (first, one), (second, two) = data
    assert first["a"].tolist() == [1, 2]
    assert first["a"].dtype == np.int64
    assert first["b"][0] == 0.5
    assert math.isnan(first["b"][1])
    assert second["name"].tolist() == ["z"]
    assert one[0] == 1.0
    assert math.isnan(one[1])  # a missing label
    assert two.tolist() == [0]
    for named, content in [
        ("column 'a': 1 of 2 values are missing", "a,b\n1,2\n,3\n"),
        ("data.csv: cannot be read", "a,b\n1,2,3\n"),
        (r"column 'x': '\[1 2 3\]' looks like a list", "x\n[1 2 3]\n"),
        ("column 'x': lists have 1 to 2 items", 'x\n"[1, 2]"\n"[1]"\n'),
    ]:
        with pytest.raises(InputDataError, match=named):
            read_data(text(tmp_path, content))


def test_a_cell_of_a_csv_may_be_a_list(tmp_path: Path) -> None:
    rows = "".join(f'"[{i}, 0.5, 1]","[x]",{i}\n' for i in range(5))
    (first, one), (second, _) = read_data(text(tmp_path, f"x,name,label\n{rows}"), batch_size=3)
    assert first["x"].tolist() == [[0, 0.5, 1], [1, 0.5, 1], [2, 0.5, 1]]
    assert second["x"].shape == (2, 3)
    assert one.tolist() == [0, 1, 2]


def test_jsonl_may_have_a_sample_a_line(tmp_path: Path) -> None:
    samples = [{"x": [float(i), 0.5], "n": i, "label": i % 2} for i in range(5)]
    (first, one), (second, two) = read_data(lines(tmp_path, *samples), batch_size=3)
    assert first["x"].tolist() == [[0, 0.5], [1, 0.5], [2, 0.5]]
    assert first["n"].tolist() == [0, 1, 2]
    assert one.tolist() == [0, 1, 0] and two.tolist() == [1, 0]
    assert second["x"].shape == (2, 2)


def test_samples_of_other_lengths_begin_a_batch_and_texts_may_be_labels(tmp_path: Path) -> None:
    samples = [{"ids": [1] * n, "label": f"t{n}"} for n in (3, 3, 2, 4, 4, 4)]
    found = list(read_data(lines(tmp_path, *samples), batch_size=2))
    assert [feed["ids"].shape for feed, _ in found] == [(2, 3), (1, 2), (2, 4), (1, 4)]
    assert [label for _, label in found] == [["t3", "t3"], ["t2"], ["t4", "t4"], ["t4"]]


def test_parquet_has_lists(tmp_path: Path) -> None:
    image = [[[i, i + 1], [0, 1]] for i in range(10)]
    path = table(tmp_path, x=X.tolist(), image=image, n=range(10), label=Y)
    data = read_data(path, batch_size=3)  # row groups have 4
    assert [len(label) for _, label in data] == [3, 3, 3, 1]
    np.testing.assert_array_equal(together(data, "x"), X)
    np.testing.assert_array_equal(together(data, "image"), np.array(image))
    np.testing.assert_array_equal(together(data, "n"), np.arange(10))
    np.testing.assert_array_equal(np.concatenate([label for _, label in data]), Y)


def test_parquet_of_other_types(tmp_path: Path) -> None:
    fixed = pa.array(X.tolist(), pa.list_(pa.float32(), 3))
    kinds = pa.array(["a", "b"] * 5).dictionary_encode()
    answers = [["yes"], ["no", "never"]] * 5
    path = table(tmp_path, x=fixed, kind=kinds, label=answers)
    (feed, label), _ = read_data(path, batch_size=7)
    assert feed["x"].dtype == np.float32
    np.testing.assert_array_equal(feed["x"], X[:7])
    assert feed["kind"].tolist() == ["a", "b", "a", "b", "a", "b", "a"]
    assert label == (answers * 2)[:7]
    ragged = table(tmp_path, x=[[1, 2], [1]])
    with pytest.raises(InputDataError, match=r"column 'x': .*batch size of 1"):
        read_data(ragged)
    assert [feed["x"].tolist() for feed, _ in read_data(ragged, batch_size=1)] == [[[1, 2]], [[1]]]
    with pytest.raises(InputDataError, match="column 'x': values of type struct"):
        read_data(table(tmp_path, x=[{"a": 1}]))


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = npz(tmp_path, x=X)
    for named, other in [
        ("date.npz: no such file. Did you mean 'data.npz'", tmp_path / "date.npz"),
        ("'.json'. Did you mean '.jsonl'", tmp_path / "data.json"),
        ("holds no samples", lines(tmp_path)),
    ]:
        with pytest.raises(InputDataError, match=named):
            read_data(other)
    with pytest.raises(OptionError, match="batch_size is 0"):
        read_data(path, batch_size=0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda asked: None)
    with pytest.raises(OptionError, match="pip install 'pyarrow>=15'"):
        read_data(text(tmp_path, "a\n1\n"))


def same(feed: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return list(feed) == list(wanted) and all(
        isinstance(feed[n], np.ndarray) and np.array_equal(feed[n], wanted[n]) for n in wanted
    )


@pytest.mark.parametrize(
    ("item", "feed", "label"),
    [
        ((X, Y), {"0": X}, Y),
        ([X, Y], {"0": X}, Y),
        ((torch.tensor(X), torch.tensor(Y)), {"0": X}, Y),
        ((torch.ones(2, requires_grad=True), None), {"0": np.ones(2)}, None),
        (((X, Y), Y), {"0": X, "1": Y}, Y),
        (([torch.tensor(X), Y], Y), {"0": X, "1": Y}, Y),
        (([[1, 2], [3, 4]], 1), {"0": np.array([[1, 2], [3, 4]])}, 1),
        ((5, 1.5), {"0": np.array(5)}, 1.5),
        (({"x": X, "mask": [1]}, Y), {"x": X, "mask": np.array([1])}, Y),
        ({"x": X, "labels": Y}, {"x": X}, Y),
        ({"x": X}, {"x": X}, None),
        (X, {"0": X}, None),
    ],
)
def test_items_of_data_loaders(item: Any, feed: dict[str, Any], label: Any) -> None:
    ((found, given),) = Dataset.of([item])
    assert same(found, feed)
    assert np.array_equal(given, label) if label is not None else given is None


def test_labels_of_other_forms() -> None:
    boxes = {"boxes": torch.ones(1, 4), "classes": [1]}
    ((_, label),) = Dataset.of([(X, [boxes])])
    assert isinstance(label[0]["boxes"], np.ndarray)
    assert [label for _, label in Dataset.of([(X, ["a", "b"]), (X, "a")])] == [["a", "b"], "a"]
    ((feed, label),) = Dataset.of([{"x": X, "y": Y}], label="y")
    assert same(feed, {"x": X})


def test_torch_data_loader() -> None:
    pairs = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    data = Dataset.of(torch.utils.data.DataLoader(pairs, batch_size=4))
    for _ in range(2):
        assert [len(label) for _, label in data] == [4, 4, 2]
        np.testing.assert_array_equal(together(data, "0"), X)


def test_a_generator_can_be_run_again() -> None:
    made = []

    def items() -> Iterator[Any]:
        for i in range(4):
            made.append(i)
            yield X[i : i + 1], Y[i]

    data = Dataset.of(items())
    assert made == []
    assert len(data.feeds(2)) == 2
    assert made == [0, 1]  # an endless one may be read in part
    again = pickle.loads(pickle.dumps(data))
    for either in (data, data, again, again):
        assert [int(label) for _, label in either] == Y[:4].tolist()
    assert made == [0, 1, 2, 3]
    assert Dataset.of(data) is data


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (5, "the data is a int; give a data loader"),
        ("data.npz", "files are read by read_data"),
        ([(X, Y, Y)], "item 0 of the data: a tuple of 3 is neither"),
        ([(X, Y), (object(), Y)], "item 1 of the data: a object of"),
        ([([[1, 2], [3]], Y)], "item 0 of the data: .*inhomogeneous"),
    ],
)
def test_items_of_other_forms_are_refused(items: Any, message: str) -> None:
    with pytest.raises(InputDataError, match=message):
        list(Dataset.of(items))


def first_three(feed: Any) -> list[Any]:
    """A model that is right about the first three samples and gives class 0 after them."""
    x = feed["x"]
    return [np.eye(3, dtype=np.float32)[np.where(x[:, 0] < 9, x[:, 0] / 3, 0).astype(int)]]


def test_accuracy_over_batches_and_a_limit(tmp_path: Path) -> None:
    data = read_data(npz(tmp_path, x=X, label=Y), batch_size=4)
    found = metric("topk", 1)
    right = (np.array([0, 1, 2, 0, 0, 0, 0, 0, 0, 0]) == Y).mean()
    assert accuracy(first_three, data, found) == pytest.approx(right)
    assert accuracy(first_three, data, found, limit=-1) == pytest.approx(right)
    assert accuracy(first_three, data, found, limit=1) == 1.0
    assert accuracy(first_three, data, found, limit=99) == pytest.approx(right)
    for limit in (0, -2):
        with pytest.raises(OptionError, match=f"limit is {limit}"):
            accuracy(first_three, data, found, limit=limit)


def test_accuracy_as_the_float_model(tmp_path: Path) -> None:
    data = read_data(npz(tmp_path, x=X), batch_size=4)
    references = outputs(first_three, data)
    assert [len(o[0]) for o in references] == [4, 4, 2]
    for name in ("agreement", "closeness"):
        assert accuracy(first_three, data, metric(name), references=references) == 1.0
    always = np.eye(3, dtype=np.float32)[:1]

    def zero(feed: Any) -> list[Any]:
        return [np.repeat(always, len(feed["x"]), axis=0)]

    agreed = accuracy(zero, data, metric("agreement"), references=references)
    assert agreed == pytest.approx(0.8)
    limited = outputs(first_three, data, limit=1)
    assert accuracy(zero, data, metric("agreement"), 1, limited) == pytest.approx(0.5)
    with pytest.raises(OptionError, match="give `references`"):
        accuracy(zero, data, metric("agreement"))
    labelled = read_data(npz(tmp_path, x=X, label=Y))  # references do not take their place
    assert accuracy(first_three, labelled, metric("Accuracy"), references=references) < 1.0


def test_labels_that_a_metric_needs(tmp_path: Path) -> None:
    data = read_data(npz(tmp_path, x=X, answer=Y))
    with pytest.raises(InputDataError, match="topk needs labels, and batch 0 has none"):
        accuracy(first_three, data, metric("topk"))
    assert accuracy(lambda feed: [feed["x"]], data, metric("Loss")) == pytest.approx(X.mean())
    with pytest.raises(InputDataError, match="holds no samples"):
        accuracy(first_three, Dataset.of([]), metric("topk"))


def test_nan_is_returned(tmp_path: Path) -> None:
    data = read_data(npz(tmp_path, x=X, label=Y.astype(float)))
    found = accuracy(lambda feed: [feed["x"][:, 0] * np.nan], data, metric("MSE"))
    assert math.isnan(found)
