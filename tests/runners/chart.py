"""What Actions Runner Controller takes of the values of a runner set, as far as the ones here use it.

A pod is described by the controller's own resource, in charts/gha-runner-scale-set-controller/crds of
https://github.com/actions/actions-runner-controller (Apache-2.0), chart 0.14.2, and so is the claim of a
volume. schemas.json is that without its texts: where the values say something, each name that may stand
there; what they say nothing about is ``false``. It is written anew, after a change of the values or for a
newer chart, by ``python -m tests.runners.chart CHECKOUT``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
VALUES = sorted((HERE.parents[1] / "templates" / "runners" / "kubernetes").glob("*-values.yaml"))
CLAIM = VALUES[0].with_name("cache.yaml")
SCHEMAS = HERE / "schemas.json"
RESOURCE = "charts/gha-runner-scale-set-controller/crds/actions.github.com_autoscalingrunnersets.yaml"
# The names that charts/gha-runner-scale-set reads, by its templates.
NAMES = {
    "annotations", "containerMode", "controllerServiceAccount", "githubConfigSecret", "githubConfigUrl",
    "githubServerTLS", "keyVault", "labels", "listenerMetrics", "listenerTemplate", "maxRunners",
    "minRunners", "nameOverride", "namespaceOverride", "proxy", "resourceMeta", "runnerGroup",
    "runnerScaleSetName", "scaleSetLabels", "template",
}  # fmt: skip


def used(schema: dict[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """The part of ``schema`` that ``values`` are described by, and nothing that is not in it."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    kept: dict[str, Any] = {
        key: schema[key] for key in ("enum", "maximum", "minimum", "required", "type") if key in schema
    }
    if isinstance(items := schema.get("items"), dict):
        kept["items"] = used(items, [one for value in values for one in value])
    if isinstance(each := schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = used(each, [one for value in values for one in value.values()])
    if isinstance(properties := schema.get("properties"), dict):
        kept["properties"] = {}
        for name, one in sorted(properties.items()):
            said = [value[name] for value in values if name in value]
            kept["properties"][name] = used(one, said) if said else False
        kept["additionalProperties"] = False
    return kept


def schemas() -> dict[str, Any]:
    """The schemas of the ``pod`` of a runner, and of the ``claim`` of a volume."""
    found: dict[str, Any] = json.loads(SCHEMAS.read_text())
    return found


def main() -> None:
    """Write schemas.json from a checkout of the controller."""
    resource = yaml.safe_load((Path(sys.argv[1]) / RESOURCE).read_text())
    schema = resource["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("spec", "template", "spec"):
        schema = schema["properties"][name]
    volume = schema["properties"]["volumes"]["items"]
    claim = volume["properties"]["ephemeral"]["properties"]["volumeClaimTemplate"]
    written = {
        "pod": used(schema, [yaml.safe_load(path.read_text())["template"]["spec"] for path in VALUES]),
        "claim": used(claim["properties"]["spec"], [yaml.safe_load(CLAIM.read_text())["spec"]]),
    }
    SCHEMAS.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
