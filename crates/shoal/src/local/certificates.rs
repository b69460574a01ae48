//! Certificates of a local cluster, made when it starts.
//!
//! An authority vouches for each node by the name of the cluster. Its own key is not kept: no other node can join. All
//! files can be read by their owner only.

use super::folder::{ClusterFolder, NAME};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes the authority's certificate into the folder, and a certificate with its key into the folder of each of these
/// nodes.
///
/// # Errors
/// If they cannot be made or written.
pub fn certify<'n>(folder: &ClusterFolder, nodes: impl Iterator<Item = &'n str>) -> io::Result<()> {
    let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "authority of a local Shoal cluster");
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let authority = CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?;
    write_private(&folder.authorities(), &authority.pem())?;
    for node in nodes {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).map_err(io::Error::other)?;
        params.distinguished_name.push(DnType::CommonName, node);
        let certificate = params.signed_by(&key, &authority).map_err(io::Error::other)?;
        let place = folder.node(node);
        write_private(&place.join("node.pem"), &certificate.pem())?;
        write_private(&place.join("node.key"), &key.serialize_pem())?;
    }
    Ok(())
}

/// Writes a file that only its owner can read, in the place of any that is there.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Security;
    use shoal_net::tls::{Certificate, NodeTls, read_certificates};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn certificates_fit_together_and_are_their_owners_alone() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = ClusterFolder(place.path().to_owned());
        // Two times: files of a former cluster are replaced.
        for _ in 0..2 {
            for node in ["a", "b"] {
                fs::create_dir_all(folder.node(node)).expect("made");
            }
            certify(&folder, ["a", "b"].into_iter()).expect("certified");
        }
        let authorities = read_certificates(&folder.authorities()).expect("certificates");
        let mut files = vec![folder.authorities()];
        for node in ["a", "b"] {
            let [certificate, key] =
                ["node.pem", "node.key"].map(|name| folder.node(node).join(name));
            let identity = Certificate::read(&certificate, &key).expect("a certificate");
            NodeTls::new(&identity, &authorities, NAME).expect("they fit");
            files.extend([certificate, key]);
        }
        for file in files {
            let mode = fs::metadata(&file).expect("there").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", file.display());
        }
        let security = Security { tls: true, client_secret: false };
        assert!(folder.access(security).expect("it can be trusted").tls.is_some());
    }
}
