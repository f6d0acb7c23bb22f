#!/bin/sh
# Compiles forebay.cu into PTX on standard output: `build.sh PYTHON`, with PYTHON one that has the packages in requirements.txt.
# `cargo xtask codegen` runs it.
# sm_75 and a lowered .version let drivers from CUDA 11.0 on take it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$("$1" -c 'import nvidia, os; print(os.path.join(list(nvidia.__path__)[0], "cu13"))')
out=$(mktemp)
trap 'rm -f "$out"' EXIT
cd "$here"
"$root/bin/nvcc" -ptx -O3 -arch=sm_75 -fmad=false -o "$out" forebay.cu
sed -e 's/^\.version .*/.version 7.0/' -e '/^\/\//d' -e '/^$/d' "$out"
