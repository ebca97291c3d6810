"""Writes one strict JSON schema per kind, from packages that carry the published schemas. README.md says which.

    pip download --no-deps --dest DIR kubernetes-validate==1.37.0
    pip download --no-deps --ignore-requires-python --dest DIR cloudcoil-models-istio==1.31.0.1
    python3 extract.py DIR gateway-api.json

Needs pydantic 2. Descriptions are left out, and an object that lists its fields allows no other.
"""

import __future__

import json
import pathlib
import sys
import types
import typing
import zipfile

import pydantic

HERE = pathlib.Path(__file__).parent
KUBERNETES = "kubernetes_validate/kubernetes-json-schema/v1.36.0-local-strict/"
ISTIO = "cloudcoil/models/istio/"


def without_descriptions(node):
    if isinstance(node, list):
        return [without_descriptions(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {}
    for key, value in node.items():
        if key in ("properties", "$defs") and isinstance(value, dict):
            kept[key] = {name: without_descriptions(field) for name, field in value.items()}
        elif key in ("description", "title", "examples") or key.startswith("x-kubernetes"):
            continue
        else:
            kept[key] = without_descriptions(value)
    return kept


def strict(node):
    """Forbids fields that are not listed where fields are listed."""
    if isinstance(node, list):
        for item in node:
            strict(item)
    elif isinstance(node, dict):
        if isinstance(node.get("properties"), dict) and "additionalProperties" not in node:
            node["additionalProperties"] = False
        for value in node.values():
            strict(value)
    return node


def kubernetes(wheel, root):
    """A schema with all it refers to."""
    published = json.loads(wheel.read(KUBERNETES + "_definitions.json"))["$defs"]
    taken = {}

    def take(name):
        if name not in taken:
            taken[name] = None
            taken[name] = refer(without_descriptions(published[name]))
        return {"$ref": "#/$defs/" + name}

    def refer(node):
        if isinstance(node, list):
            return [refer(item) for item in node]
        if not isinstance(node, dict):
            return node
        if isinstance(node.get("$ref"), str):
            return take(node["$ref"].rsplit("/", 1)[-1])
        return {key: refer(value) for key, value in node.items()}

    return {**take(root), "$defs": taken}


class Base(pydantic.BaseModel):
    """What the generated classes derive from; their builders are of no use here."""


class Anything:
    def __class_getitem__(cls, _):
        return cls


def stand_in(name, **members):
    module = types.ModuleType(name)
    module.__getattr__ = lambda member: members.get(member, Anything)
    sys.modules[name] = module


def istio(wheel, file, kind):
    name = "istio_" + file.replace("/", "_").removesuffix(".py")
    if name not in sys.modules:
        module = types.ModuleType(name)
        sys.modules[name] = module
        # Annotations that name later classes are read when they are needed, as in the Python the package is for.
        lazy = __future__.annotations.compiler_flag
        exec(compile(wheel.read(ISTIO + file), name, "exec", flags=lazy), module.__dict__)
    schema = getattr(sys.modules[name], kind).model_json_schema(by_alias=True)
    return without_descriptions(schema)


def custom(kind, schema, meta):
    """A custom resource's schema leaves the envelope to Kubernetes."""
    fields = schema["properties"]
    fields["kind"] = {"const": kind}
    fields.setdefault("apiVersion", {"type": "string"})
    fields["metadata"] = {"$ref": meta["$ref"]}
    schema["$defs"] = {**schema.get("$defs", {}), **meta["$defs"]}
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return schema


def write(kind, schema):
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **strict(schema)}
    (HERE / f"{kind}.json").write_text(json.dumps(schema, sort_keys=True, separators=(",", ":")) + "\n")


def main(folder, gateway_api):
    stand_in("cloudcoil.apimachinery", ObjectMeta=dict)
    stand_in("cloudcoil.pydantic", BaseModel=Base, UNSET=None, Never=typing.Never, Self=typing.Self)
    stand_in("cloudcoil.resources", Resource=Base)
    folder = pathlib.Path(folder)
    with zipfile.ZipFile(next(folder.glob("kubernetes_validate-*.whl"))) as wheel:
        for kind, group in [("Service", "core"), ("Deployment", "apps"), ("ConfigMap", "core")]:
            write(kind, kubernetes(wheel, f"io.k8s.api.{group}.v1.{kind}"))
        meta = kubernetes(wheel, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    with zipfile.ZipFile(next(folder.glob("cloudcoil_models_istio-1.31*.whl"))) as wheel:
        for kind, file in [("EnvoyFilter", "networking/v1alpha3.py"), ("WasmPlugin", "extensions/v1alpha1.py")]:
            write(kind, custom(kind, istio(wheel, file, kind), meta))
    for kind, schema in json.loads(pathlib.Path(gateway_api).read_text()).items():
        write(kind, custom(kind, without_descriptions(schema), meta))


main(*sys.argv[1:])
