"""Updates as JSON objects, column by column: images as objects, and around them what happened, where and
when.

One line is one update:
`{"position":"7:0","op":"update","database":"shop","table":"prices","transaction":"0-1-7","time":"2026-…Z",
"before":{…},"after":{…}}`. An image has the columns that the log gave: an image of the key alone has only
these, and values that the log left out because they did not change are named in `unchanged`.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.json_text import bare_digits, encode, iso_texts, json_texts
from qanat.capture.table import Column
from qanat.capture.updates import Op, Run

Texts = Callable[[Column, pa.Array], pa.Array]
Parts = list[pa.Array | str]
"""What is joined, row by row; a text is the same in all rows."""
WORDS = {op: op.name.lower() for op in Op}
"""How operations are called in JSON and in attributes."""
_NULL = pa.scalar("null")


def plain(_column: Column, values: pa.Array) -> pa.Array:
    """A column as `docs/updates.md` writes it."""
    return json_texts(values)


def joined(*parts: pa.Array | str) -> pa.Array:
    """Texts end to end, row by row. What is the same in all rows is joined once."""
    merged: Parts = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return pc.binary_join_element_wise(*merged, "")


def objects(
    run: Run,
    image: pa.RecordBatch | None,
    there: npt.NDArray[np.bool_],
    texts: Texts,
    *,
    after: bool,
    unchanged: str = "",
) -> pa.Array:
    """An image of each row as a JSON object, `null` for rows without one.

    A value that the log left out is left out here too; or, if there is a text for what did not change, images
    have all columns.
    """
    parts = _object_parts(run, image, there, texts, after=after, unchanged=unchanged)
    if all(isinstance(part, str) for part in parts):
        return pa.array(parts * len(run), pa.string())
    return joined(*parts)


def _object_parts(
    run: Run,
    image: pa.RecordBatch | None,
    there: npt.NDArray[np.bool_],
    texts: Texts,
    *,
    after: bool,
    unchanged: str = "",
) -> Parts:
    if not there.any():
        return ["null"]
    if image is None or not run.table.columns:
        empty = pa.array(["{}" if not run.table.columns else "null"] * len(run))
        return [pc.if_else(pa.array(there), empty, _NULL)]
    fragments: Parts = []
    for column in run.table.columns:
        values = image.column(column.name)
        name = f",{encode(column.name).decode()}:"
        kept = run.unchanged.get(column.name) if after and run.unchanged is not None else None
        partial = run.key_only if not (after or column.key or unchanged) else None
        out = kept if partial is None else partial
        if out is not None and not out.any():
            out = None
        if out is None and texts is plain and (digits := bare_digits(values)) is not None:
            fragments += [f'{name}"', digits, '"']  # the quotes are joined with what is around them, once
            continue
        value = texts(column, values)
        if kept is not None and unchanged:
            value = pc.if_else(pa.array(kept), encode(unchanged).decode(), value)
            out = None
        if out is None:
            fragments += [name, value]
        else:
            fragments.append(pc.if_else(pa.array(out), "", joined(name, value)))
    first = fragments[0]
    if isinstance(first, str):
        parts: Parts = ["{" + first[1:], *fragments[1:], "}"]
        if there.all():
            return parts
        whole = joined(*parts)
    else:  # the first column is left out of some rows, and which comma comes first is known only now
        whole = joined("{", pc.utf8_slice_codeunits(joined(*fragments), 1), "}")
    return [whole if there.all() else pc.if_else(pa.array(there), whole, _NULL)]


def positions(run: Run) -> pa.Array:
    """`sequence:index` of each row."""
    return pc.binary_join_element_wise(
        pa.array(run.sequences).cast(pa.string()), pa.array(run.indexes).cast(pa.string()), ":"
    )


def words(run: Run) -> pa.DictionaryArray:
    """What happened, by name."""
    if len(run) and (run.ops == run.ops[0]).all():
        word = WORDS[Op(int(run.ops[0]))]
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(run), np.uint8)), pa.array([word]))
    return pa.DictionaryArray.from_arrays(pa.array(run.ops), pa.array([WORDS[op] for op in Op]))


def times(run: Run) -> pa.Array:
    """Commit times as ISO 8601 in UTC; nothing outside the years 1 to 9999, where no clock is."""
    distinct, which = np.unique(run.times_us, return_inverse=True)  # updates of a transaction share theirs
    return _iso(distinct).take(pa.array(which.reshape(-1)))


def _iso(times_us: npt.NDArray[np.int64]) -> pa.Array:
    return iso_texts(pa.array(times_us).view(pa.timestamp("us", "UTC")))


def lines(run: Run, shards: pa.Array | None = None) -> pa.Array:
    """Each update as one line of JSON."""
    table = run.table
    head = f',"database":{encode(table.database).decode()}'
    if table.schema:
        head += f',"schema":{encode(table.schema).decode()}'
    head += f',"table":{encode(table.name).decode()},"transaction":'
    parts: Parts = ['{"position":"', pa.array(run.sequences).cast(pa.string()), ":"]
    parts += ["0" if not run.indexes.any() else pa.array(run.indexes).cast(pa.string()), '","op":"']
    alike = len(run) > 0 and (run.ops == run.ops[0]).all()
    parts += [WORDS[Op(int(run.ops[0]))] if alike else words(run).dictionary_decode(), '"']
    if shards is not None:
        named: Parts = [',"shard":', json_texts(shards)]
        parts += [pc.if_else(shards.is_valid(), joined(*named), "")] if shards.null_count else named
    parts += [head, json_texts(run.transactions), ',"time":"']
    alike = len(run) > 0 and (run.times_us == run.times_us[0]).all()
    parts += [_iso(run.times_us[:1])[0].as_py() if alike else times(run), '"']
    parts += [',"before":', *_object_parts(run, run.before, run.befores, plain, after=False)]
    parts += [',"after":', *_object_parts(run, run.after, run.afters, plain, after=True)]
    kept = _unchanged(run)
    parts += ["}"] if kept is None else [kept, "}"]
    return joined(*parts)


def _unchanged(run: Run) -> pa.Array | None:
    names = {name: bits for name, bits in (run.unchanged or {}).items() if bits.any()}
    if not names:
        return None
    parts = [pc.if_else(pa.array(bits), f",{encode(name).decode()}", "") for name, bits in names.items()]
    listed = joined(',"unchanged":[', pc.utf8_slice_codeunits(joined(*parts, ""), 1), "]")
    return pc.if_else(pa.array(np.logical_or.reduce(list(names.values()))), listed, "")
