"""Which character set a collation's number belongs to (MariaDB 10.11), and how Python calls it."""

# As information_schema.collation_character_set_applicability lists them; ids from 1024 are without padding,
# from 2048 of UCA 14.
_COLLATIONS = {
    "armscii8": "32,64,1056,1088",
    "ascii": "11,65,1035,1089",
    "big5": "1,84,1025,1108",
    "binary": "63",
    "cp1250": "26,34,44,66,99,1050,1090",
    "cp1251": "14,23,50-52,1074-1075",
    "cp1256": "57,67,1081,1091",
    "cp1257": "29,58-59,1082-1083",
    "cp850": "4,80,1028,1104",
    "cp852": "40,81,1064,1105",
    "cp866": "36,68,1060,1092",
    "cp932": "95-96,1119-1120",
    "dec8": "3,69,1027,1093",
    "eucjpms": "97-98,1121-1122",
    "euckr": "19,85,1043,1109",
    "gb2312": "24,86,1048,1110",
    "gbk": "28,87,1052,1111",
    "geostd8": "92-93,1116-1117",
    "greek": "25,70,1049,1094",
    "hebrew": "16,71,1040,1095",
    "hp8": "6,72,1030,1096",
    "keybcs2": "37,73,1061,1097",
    "koi8r": "7,74,1031,1098",
    "koi8u": "22,75,1046,1099",
    "latin1": "5,8,15,31,47-49,94,1032,1071",
    "latin2": "2,9,21,27,77,1033,1101",
    "latin5": "30,78,1054,1102",
    "latin7": "20,41-42,79,1065,1103",
    "macce": "38,43,1062,1067",
    "macroman": "39,53,1063,1077",
    "sjis": "13,88,1037,1112",
    "swe7": "10,82,1034,1106",
    "tis620": "18,89,1042,1113",
    "ucs2": "35,90,128-151,159,640-642,1059,1114,1152,1174,2560-2727,2744-2759",
    "ujis": "12,91,1036,1115",
    "utf16": "54-55,101-124,672-674,1078-1079,1125,1147,2816-2983,3000-3015",
    "utf16le": "56,62,1080,1086",
    "utf32": "60-61,160-183,736-738,1084-1085,1184,1206,3072-3239,3256-3271",
    "utf8mb3": "33,83,192-215,223,576-578,1057,1107,1216,1238,2048-2215,2232-2247",
    "utf8mb4": "45-46,224-247,608-610,1069-1070,1248,1270,2304-2471,2488-2503",
}
# Bytes of these are text as they are, if they are valid UTF-8.
UTF8 = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
CODECS = {
    "big5": "big5", "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257",
    "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "cp932": "cp932", "eucjpms": "euc_jp",
    "euckr": "euc_kr", "gb2312": "gb2312", "gbk": "gbk", "greek": "iso8859_7", "hebrew": "iso8859_8",
    "koi8r": "koi8_r", "koi8u": "koi8_u", "latin2": "iso8859_2", "latin5": "iso8859_9",
    "latin7": "iso8859_13", "macce": "mac_latin2", "macroman": "mac_roman", "sjis": "shift_jis",
    "tis620": "tis_620", "ucs2": "utf_16_be", "ujis": "euc_jp", "utf16": "utf_16_be", "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
}  # fmt: skip
"""Character sets that are decoded by Python. latin1 has its own way; what is in neither is given as bytes."""
WIDE = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
"""Those in which ASCII is not a byte for a character."""
LONGEST = {
    "utf8mb4": 4,
    "utf8mb3": 3,
    "ucs2": 2,
    "utf16": 4,
    "utf16le": 4,
    "utf32": 4,
    "ujis": 3,
    "eucjpms": 3,
}
LONGEST |= dict.fromkeys(("big5", "cp932", "euckr", "gb2312", "gbk", "sjis"), 2)
"""Bytes of the longest character, where that is not 1."""
LATIN1 = tuple(bytes([code]).decode("cp1252", "replace") for code in range(256))
# MariaDB's latin1 is Windows-1252 with its five holes filled by the control characters of the same number.
LATIN1_TABLE = {code: chr(code) if text == "\ufffd" else text for code, text in enumerate(LATIN1)}


def _numbers() -> dict[int, str]:
    found = {}
    for charset, ranges in _COLLATIONS.items():
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            found.update(dict.fromkeys(range(int(first), int(last or first) + 1), charset))
    return found


CHARSET_OF = _numbers()


def text_of(value: bytes, charset: str) -> str:
    """One value; for many that are UTF-8 there is a faster way."""
    if charset == "latin1":
        return value.decode("latin-1").translate(LATIN1_TABLE)
    return value.decode("utf-8" if charset in UTF8 else CODECS[charset])


def is_text(charset: str) -> bool:
    return charset == "latin1" or charset in UTF8 or charset in CODECS
