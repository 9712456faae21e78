"""Blocks of bytes, compressed each by itself, and taken apart again by nobody's word but their declared size."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LEVEL = 3
# More than a block may hold: whatever a file says, no more than this is ever unpacked at once.
MAX_BLOCK_BYTES = 128 << 20
_WINDOW_LOG_MAX = 27


def pack(raw: bytes) -> bytes:
    """Return `raw` as one zstd frame that says its size and ends with a checksum."""
    options = {int(zstd.CompressionParameter.compression_level): LEVEL, int(zstd.CompressionParameter.checksum_flag): 1}
    return zstd.compress(raw, options=options)


def unpack(stored: bytes, *, size: int) -> bytes:
    """Return what a frame holds, which is `size` bytes. Raises: ValueError where it is more, less, or no frame."""
    if not 0 <= size <= MAX_BLOCK_BYTES:
        raise ValueError(f"a block of {size} bytes")
    decompressor = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX})
    try:
        raw = decompressor.decompress(stored, max_length=size + 1)
        if not decompressor.eof and len(raw) == size:  # the end of the frame, its checksum, may still be to come
            raw += decompressor.decompress(b"", max_length=1)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from error
    if len(raw) != size or not decompressor.eof or decompressor.unused_data:
        raise ValueError(f"it does not hold the {size} bytes that it says")
    return raw
