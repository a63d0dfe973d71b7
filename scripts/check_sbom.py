"""Checks bills of materials by CycloneDX's own schema: python scripts/check_sbom.py FILE…"""

import json
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

for name in sys.argv[1:]:
    text = Path(name).read_text(encoding="utf-8")
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        sys.exit(f"{name}: {error}")
    print(f"{Path(name).name}: CycloneDX 1.6, {len(json.loads(text)['components'])} components")
