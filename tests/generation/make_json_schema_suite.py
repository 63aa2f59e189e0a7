"""Writes json_schema_suite.json: cases of the JSON Schema Test Suite for draft 2020-12.

    python tests/generation/make_json_schema_suite.py jsonschema-4.26.0.tar.gz

The suite is in the source distribution of `jsonschema` 4.26.0 (json/tests; MIT license, Copyright
(c) 2012 Julian Berman). All cases of each keyword are kept but those of other metaschemas, and of
optional files the formats and regular expressions.
"""

import json
import pathlib
import sys
import tarfile

FILE = pathlib.Path(__file__).with_name("json_schema_suite.json")
OPTIONAL = ("optional/format/", "optional/ecmascript-regex", "optional/non-bmp-regex")
LEFT_OUT = ("format.json", "vocabulary.json", "refRemote.json", "dynamicRef.json")


def main():
    kept = []
    with tarfile.open(sys.argv[1]) as archive:
        for member in archive.getmembers():
            _, _, name = member.name.partition("json/tests/draft2020-12/")
            if not name.endswith(".json") or name in LEFT_OUT:
                continue
            if name.startswith("optional/") and not name.startswith(OPTIONAL):
                continue
            for case in json.load(archive.extractfile(member)):
                tests = [[t["data"], t["valid"]] for t in case["tests"]]
                kept.append([name.removesuffix(".json"), case["schema"], tests])
    lines = [json.dumps(case, separators=(",", ":")) for case in kept]
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
