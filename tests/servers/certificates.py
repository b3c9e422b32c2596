"""Certificates: an authority of this machine for tests, and what it signed for servers and for a client."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificates:
    """Files of one folder. Servers want a certificate of their own authority from each client."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        authority = self._make("authority")
        for name in ("server", "client"):
            self._make(name, by=authority)
        self._make("stranger", by=self._make("foreign-authority"))

    @property
    def server_options(self) -> dict[str, str]:
        """Options of a server, besides its `tls-port`. It accepts clients with a certificate only."""
        return {
            "tls-cert-file": self._file("server.pem"),
            "tls-key-file": self._file("server.key"),
            "tls-ca-cert-file": self._file("authority.pem"),
            "tls-auth-clients": "yes",
        }

    @property
    def authority(self) -> dict[str, str]:
        """Parameters of a connection that trusts the servers and shows no certificate."""
        return {"ssl_ca_certs": self._file("authority.pem")}

    @property
    def client(self) -> dict[str, str]:
        """Parameters of a connection that shows a certificate that the servers trust."""
        return {**self.authority, **self._shows("client")}

    @property
    def stranger(self) -> dict[str, str]:
        """Parameters of a connection that shows a certificate of another authority."""
        return {**self.authority, **self._shows("stranger")}

    def _shows(self, name: str) -> dict[str, str]:
        return {"ssl_certfile": self._file(f"{name}.pem"), "ssl_keyfile": self._file(f"{name}.key")}

    def _file(self, name: str) -> str:
        return str(self._folder / name)

    def _make(
        self, name: str, *, by: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None
    ) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
        """Write a certificate of 127.0.0.1 and its key; without `by` it is an authority."""
        key, subject = (
            ec.generate_private_key(ec.SECP256R1()),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        )
        issuer, signing_key = by or (subject, key)
        now = datetime.now(UTC)
        names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(signing_key, hashes.SHA256())
        )
        (self._folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        (self._folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return subject, key
