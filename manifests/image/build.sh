#!/usr/bin/env bash
# Build an image from a clone, or from what `cockpit manifests write` wrote, with docker, podman or buildah:
#   manifests/image/build.sh [train|cockpit] [OPTION …]
#     --builder NAME    docker, podman or buildah (default: the first that is installed)
#     --from IMAGE      a Debian with Python 3.11 and its module venv (default: python:3.11-slim-bookworm)
#     --name NAME       the image's name, with the repository of your registry (default: cockpit-train, cockpit)
#     --torch-index URL train: the index that torch is installed from; PyTorch's CPU index for an image
#                       without CUDA libraries (default: pip's own index, whose torch has them)
#     --pip-conf FILE   pip's settings for a private registry, as a secret of the build
#     -- ARGUMENT …     further arguments of the builder's build command
# The tag is cockpit's version, which all manifests use.
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() { echo "$1" >&2; exit 2; }

what=train
case "${1-}" in train | cockpit) what=$1; shift ;; esac
builder='' from='' name='' torch_index='' pip_conf=''
while [ $# -gt 0 ]; do
  case "$1" in
    --builder) builder=${2?}; shift 2 ;;
    --from) from=${2?}; shift 2 ;;
    --name) name=${2?}; shift 2 ;;
    --torch-index) torch_index=${2?}; shift 2 ;;
    --pip-conf) pip_conf=${2?}; shift 2 ;;
    --) shift; break ;;
    *) fail "build.sh has no option $1: see the head of the script." ;;
  esac
done
if [ -z "$builder" ]; then
  for each in docker podman buildah; do
    if command -v "$each" >/dev/null; then builder=$each; break; fi
  done
fi
case "$builder" in
  docker | podman) build=("$builder" build) ;;
  buildah) build=(buildah build --format docker --layers) ;; # its default is one layer for all steps
  *) fail "No builder: install docker, podman or buildah, or name one with --builder." ;;
esac
command -v "$builder" >/dev/null || fail "$builder is not installed."

case "$torch_index" in
  *://*@*) fail "A user or password in --torch-index would be in a layer of the image: use --pip-conf." ;;
esac

version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
tar --create --exclude=__pycache__ --exclude='*.pyc' constraints.txt pyproject.toml README.md LICENSE \
  cockpit training themes manifests | tar --extract --directory "$context"
cp manifests/image/sbom.py "$context"
chmod -R u=rwX,go=rX "$context"/* # user 1000 reads them, whatever the umask of this clone was

if [ "$what" = train ]; then
  # The extras `train` and `postgres` of pyproject.toml, without their comments.
  for extra in train postgres; do
    packages=$(sed -n "/^$extra = \\[/,/^\\]/s/^ *\"\\([^\"]*\\)\".*/\\1/p" pyproject.toml)
    [ -n "$packages" ] || fail "pyproject.toml has no extra $extra."
    echo "$packages"
  done >"$context/requirements.txt"
  { [ -z "$torch_index" ] || echo "--index-url $torch_index"
    grep '^torch' "$context/requirements.txt"; } >"$context/requirements-torch.txt"
  variant=gpu
  [ -z "$torch_index" ] || variant=cpu
  arguments=(--file manifests/image/Dockerfile --tag "${name:-cockpit-train}:$version"
    --build-arg "VARIANT=$variant")
else
  arguments=(--file manifests/image/cockpit.Dockerfile --tag "${name:-cockpit}:$version")
fi
[ -z "$from" ] || arguments+=(--build-arg "BASE=$from")
[ -z "$pip_conf" ] || arguments+=(--secret "id=pip,src=$pip_conf")
arguments+=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision")
"${build[@]}" "${arguments[@]}" "$@" "$context"
