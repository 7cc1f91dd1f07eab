"""llama.cpp's own HTTP server, from the package xllamacpp: `python serve.py MODEL NAME=VALUE ...`.

It says its address and ends with its standard input. The names are llama-server's options as the
package spells them, the values are of its module.
"""

from __future__ import annotations

import sys

import xllamacpp


def main(file: str, *options: str) -> None:
    settings = xllamacpp.CommonParams()
    settings.model.path, settings.port = file, 0
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    for option in options:
        name, _, value = option.partition("=")
        *within, last = name.split(".")
        at = settings
        for part in within:
            at = getattr(at, part)
        setattr(at, last, eval(value, vars(xllamacpp)))
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
