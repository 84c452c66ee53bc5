//! Certificates and private keys in PEM files and configuration: which blocks are used, and what is an error.

use std::path::{Path, PathBuf};

use plinth_codec::pem::{self, Block, PemError};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// PEM label of a certificate.
pub const CERTIFICATE_LABEL: &str = "CERTIFICATE";

/// A PEM text without usable certificates or key.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// It is malformed.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// It contains no private key of a supported kind.
    #[error("no private key in PEM")]
    NoKey,
}

/// A file without usable certificates or key.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// Its contents are invalid.
    #[error("cannot read {path}: {source}")]
    Text {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        source: TextError,
    },
}

/// The certificates of a text, in order. Blocks with other labels are ignored, as is text around blocks; a
/// certificate with PEM headers is an error, since upstream's readers disagree about it.
///
/// # Errors
/// [`PemError`].
pub fn parse_certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let certificates = pem::parse(text)?.into_iter().filter(|block| block.label == CERTIFICATE_LABEL);
    certificates.map(|block| contents(block).map(CertificateDer::from)).collect()
}

/// The first private key of a text: PKCS#8, PKCS#1 or SEC1.
///
/// # Errors
/// [`TextError`]; encrypted keys are not supported.
pub fn parse_private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, TextError> {
    for block in pem::parse(text)? {
        return Ok(match block.label.as_str() {
            "PRIVATE KEY" => PrivateKeyDer::Pkcs8(contents(block)?.into()),
            "RSA PRIVATE KEY" => PrivateKeyDer::Pkcs1(contents(block)?.into()),
            "EC PRIVATE KEY" => PrivateKeyDer::Sec1(contents(block)?.into()),
            _ => continue,
        });
    }
    Err(TextError::NoKey)
}

fn contents(block: Block) -> Result<Vec<u8>, PemError> {
    match block.has_headers {
        true => Err(PemError::Headers),
        false => Ok(block.contents),
    }
}

/// The certificates of a file, in order.
///
/// # Errors
/// [`FileError`].
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    read_bundle(path).map(|(certificates, _)| certificates)
}

/// The certificates of a file, and its content.
///
/// # Errors
/// [`FileError`].
pub fn read_bundle(path: &Path) -> Result<(Vec<CertificateDer<'static>>, Vec<u8>), FileError> {
    let content = read(path)?;
    let certificates = parse_certificates(&content)
        .map_err(|e| FileError::Text { path: path.to_owned(), source: e.into() })?;
    Ok((certificates, content))
}

/// The private key of a file.
///
/// # Errors
/// [`FileError`].
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    parse_private_key(&read(path)?).map_err(|source| FileError::Text { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    std::fs::read(path).map_err(|source| FileError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_by_table() {
        let block =
            |label: &str, body: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
        let two = format!(
            "# a bundle\n{}# more\n{}",
            block(CERTIFICATE_LABEL, "YQ=="),
            block(CERTIFICATE_LABEL, "Yg==")
        );
        assert_eq!(parse_certificates(two.as_bytes()).unwrap().len(), 2);
        let with_key = format!("{}{two}", block("EC PARAMETERS", "YQ==") + &block("EC PRIVATE KEY", "Yw=="));
        assert_eq!(parse_certificates(with_key.as_bytes()).unwrap().len(), 2);
        assert!(matches!(parse_private_key(with_key.as_bytes()), Ok(PrivateKeyDer::Sec1(_))));
        assert!(matches!(parse_private_key(two.as_bytes()), Err(TextError::NoKey)));
        let headed = block(CERTIFICATE_LABEL, "K: v\n\nYQ==");
        assert_eq!(parse_certificates(headed.as_bytes()), Err(PemError::Headers));
        let encrypted = block("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\n\nYQ==");
        assert!(matches!(parse_private_key(encrypted.as_bytes()), Err(TextError::Pem(PemError::Headers))));
        assert!(parse_certificates(format!(" {two}").replace("# a", "").as_bytes()).is_ok());
        assert!(parse_certificates(block(CERTIFICATE_LABEL, "!").as_bytes()).is_err());
    }
}
