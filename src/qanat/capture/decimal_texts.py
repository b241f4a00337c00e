"""Decimals as text with all digits of their scale and never an exponent, a whole column at a time.

Arrow writes 0.0000001 as `1E-7`, and zero with ten digits of scale as `0E-10`: text that is equal to nothing
that a person or a filter would write.
"""

import pyarrow as pa
import pyarrow.compute as pc

_PLAIN_SCALE = 6
"""Up to this scale Arrow itself writes no exponent: it does so where the first digit is further behind the
point."""


def decimal_texts(values: pa.Array) -> pa.Array:
    """`-12.50`, `0.0000001000`, `1000`; null stays null."""
    scale = values.type.scale
    if 0 <= scale <= _PLAIN_SCALE:
        return values.cast(pa.string())
    # The same numbers without a scale: whole ones are written without an exponent.
    whole = pa.decimal256(76, 0) if pa.types.is_decimal256(values.type) else pa.decimal128(38, 0)
    digits = values.view(whole).cast(pa.string())
    if scale < 0:
        return pc.if_else(pc.equal(digits, "0"), "0", pc.binary_join_element_wise(digits, "0" * -scale, ""))
    negative = pc.starts_with(digits, "-")
    padded = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    texts = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale), "."
    )
    return pc.if_else(negative, pc.binary_join_element_wise("-", texts, ""), texts)
