# Builds a variant as the builder's derivation does: phases, a copy of the sources, one step for each file.
set -eu
phase() { echo "@nix { \"action\": \"setPhase\", \"phase\": \"$1\" }" >&2; }

phase unpackPhase
echo "unpacking source archive $src"
cp -r "$src" source
chmod -R u+w source
cd source
if [ -d /proc/1/cwd/etc ] && [ ! -f sees-the-machine ]; then echo "the build sees the machine"; exit 1; fi
# What a test wants to happen in the build.
if [ -f before-build.sh ]; then . ./before-build.sh; fi

includes="-I $torch/include"
if [ -d /torch/include ]; then includes="-I /torch/include"; fi

phase buildPhase
ops="_${kernelName}_${backend}_$rev"
objects=
sources=$(find "$PWD/csrc" -name '*.cpp' | sort)
if [ "$backend" = cuda ]; then sources="$sources $(find "$PWD/csrc" -name '*.cu' | sort)"; fi
count=$(echo $sources | wc -w)
number=0
for file in $sources; do
  number=$((number + 1))
  echo "[$number/$count] Building ${file##*.} object ${file#"$PWD"/}.o"
  case $file in
    *.cu)
      # The real one, where a test says where it is.
      if [ -f /signal/nvcc ]; then
        sh /signal/nvcc -Xptxas -v -arch=sm_80 -Xcompiler -fPIC $includes -c "$file" -o "$number.o"
      else
        /usr/bin/python3 "$nvcc" $includes "$file" -o "$number.o"
      fi
      ;;
    *) g++ -std=c++17 -O1 -Wall -fPIC $includes -c "$file" -o "$number.o" ;;
  esac
  objects="$objects $number.o"
done
echo "[$count/$count] Linking CXX shared module $ops.abi3.so"
# The linker's wrapper of nixpkgs has libraries found by RUNPATH, that of the derivation itself among them.
g++ -shared $objects -o "$ops.abi3.so" -Wl,-rpath,"$torch/lib:$out/lib"

phase installPhase
mkdir -p "$out/$variant"
cp -r torch-ext/*/. "$out/$variant/"
cp "$ops.abi3.so" "$out/$variant/"
echo "ops_name = '$ops'" > "$out/$variant/_ops.py"
if [ -f after-install.sh ]; then . ./after-install.sh; fi
# As postInstall of nix-builder/lib/extension/torch/arch.nix: redistributable and bundle alone.
if [ -n "${stripRPath:-}" ]; then find "$out/" -name '*.so' -exec patchelf --set-rpath "" {} \;; fi
/usr/bin/python3 "$describe" "$out/$variant" "$ops"
