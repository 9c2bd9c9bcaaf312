#!/usr/bin/env bash
# Makes .venv and installs what the repository needs: requirements.txt where there is an NVIDIA GPU, else
# requirements-cpu.txt. Running it again is harmless: it does only what is not done. It takes one to five minutes.
#
#   ./setup.sh                      PYTHON=/path/to/python3.11 ./setup.sh     another Python
#   SETUP_STACK=cpu|gpu ./setup.sh  instead of looking for a GPU
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf '[setup] %s\n' "$*"; }
fail() { printf '[setup] error: %s\n' "$*" >&2; exit 1; }

stack=${SETUP_STACK:-}
if [ -z "$stack" ]; then
    if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then stack=gpu; else stack=cpu; fi
fi
case $stack in
    gpu) list=requirements.txt ;;
    cpu) list=requirements-cpu.txt ;;
    *) fail "SETUP_STACK is '$stack'; expected cpu or gpu" ;;
esac

# The stamp is written last: an installation that broke off is taken up again.
stamp=.venv/.installed
wanted="$stack $(cksum <"$list")"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    say "already set up ($list)"
    exit 0
fi

python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3.11 python3 python; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
fi
[ -n "$python" ] || fail "Python 3.11 is missing: install it (apt install python3.11 python3.11-venv, or pyenv), or name it with PYTHON=..."
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || fail "$python is not Python 3.11"
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$python has no venv module: install python3.11-venv"
# DeepSpeed builds its CPU communication and torch compiles kernels at run time
{ command -v g++ || command -v clang++; } >/dev/null || fail "a C++ compiler is missing: install g++ (apt install g++)"
printf '#include <Python.h>\n' | "${CXX:-g++}" -x c++ -fsyntax-only -I"$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" - 2>/dev/null ||
    fail "the headers of $python are missing: install python3.11-dev"

say "$stack stack from $list, with $("$python" --version)"
rm -f "$stamp"
.venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv # a venv cut short is made anew
say "1/3 installer"
.venv/bin/python -m pip install --quiet --disable-pip-version-check uv
say "2/3 packages"
if [ "$stack" = cpu ]; then
    # torch with pip: where a CPU build is offered beside the registry's CUDA build, pip finds it and uv does not
    grep '^torch==' "$list" >.venv/torch.txt
    grep -v '^torch==' "$list" >.venv/others.txt
    .venv/bin/python -m pip install --disable-pip-version-check --no-deps --quiet -r .venv/torch.txt
    .venv/bin/uv pip install --python .venv/bin/python --compile-bytecode --no-deps -r .venv/others.txt
    if ! .venv/bin/python -c 'import torch' 2>/dev/null; then # a CUDA build without its libraries
        say "the package index has no CPU build of torch: taking PyTorch's"
        .venv/bin/python -m pip install --disable-pip-version-check --no-deps --quiet --force-reinstall \
            --index-url https://download.pytorch.org/whl/cpu -r .venv/torch.txt
    fi
else
    .venv/bin/uv pip install --python .venv/bin/python -r "$list" --override <(echo "flash-attn; sys_platform == 'never'")
    .venv/bin/uv pip install --python .venv/bin/python --no-build-isolation flash-attn==2.8.3 ||
        say "flash-attn could not be built; it is optional: attention falls back to PyTorch's own (sdpa)"
fi
say "3/3 compiling what DeepSpeed needs, about a minute"
rm -rf .venv/torch_extensions # a build that was killed leaves a lock that others wait for
.venv/bin/python - <<'EOF' || fail "the installation is incomplete: see above; ./setup.sh takes it up again"
from importlib.metadata import version
from marti_ext import compat
compat.build_extensions()
import openrlhf.trainer.ray.ppo_actor  # what training imports
print("[setup]  ", ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "deepspeed", "ray", "openrlhf")))
EOF
echo "$wanted" >"$stamp"
say "done"
