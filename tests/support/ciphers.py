"""A cipher for the encrypting serialiser, whose own needs a library more."""

from __future__ import annotations

import os


class Rotation:
    """LangGraph's `CipherProtocol`: adds a random number to every byte. Hides from nobody."""

    def __init__(self) -> None:
        self.decrypted = 0

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Two encryptions of one text differ, as with any good cipher."""
        key = bytes([1 + os.urandom(1)[0] % 255])  # 0 would leave the text as it is
        return "rotation", key + bytes((byte + key[0]) % 256 for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Undo `encrypt`."""
        if ciphername != "rotation":
            message = f"unknown cipher {ciphername}"
            raise ValueError(message)
        self.decrypted += 1
        return bytes((byte - ciphertext[0]) % 256 for byte in ciphertext[1:])
