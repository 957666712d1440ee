"""Every kernel compiles for every target without a spill; addresses are 64-bit in the compiled code."""

import os
import re
import subprocess
import sys

ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}


def test_every_kernel_compiles_without_a_spill():
    done = subprocess.run(
        [sys.executable, "-m", "kernels.aot", "--check"], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    number, spilled = re.search(r"(\d+) kernels compiled, (\d+) spill", done.stdout).groups()
    assert int(number) >= 150
    assert int(spilled) == 0


SCRIPT = """
from triton.compiler import ASTSource
import triton
from kernels import aot, logit_stats, paged_attention
for module, kernel in ((logit_stats, "scan fp32"), (paged_attention, "decode bf16 64")):
    shipped = next(s for s in module.shipped() if s.name == kernel)
    names = shipped.kernel.arg_names
    source = ASTSource(
        fn=shipped.kernel,
        signature={n: "constexpr" if n in shipped.constants else shipped.signature[n] for n in names},
        constexprs={(names.index(n),): v for n, v in shipped.constants.items()},
    )
    print("KERNEL", kernel)
    print(triton.compile(source, target=aot.TARGETS["sm_90"], options={"num_warps": shipped.num_warps}).asm["ttir"])
"""


def test_offsets_are_64_bit_in_the_compiled_code():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    logits, attention = done.stdout.split("KERNEL ")[1:]
    # Row times vocabulary, and block times the elements of a block, are i64 products; no pointer moves by a 32-bit one.
    assert re.search(r"arith\.muli .* : i64", logits)
    assert re.search(r"arith\.muli .* : tensor<\d+xi64>", attention)
    assert re.search(r"tt\.addptr .* tensor<\d+x\d+xi64>", attention)
