//! Why a client could not connect to a cluster.

use std::fmt;

/// No node was reached at any of these addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConnectError {
    /// The addresses, and the error at each.
    pub tried: Vec<(String, String)>,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tried.is_empty() {
            return f.write_str("cannot connect to the cluster: no address was given");
        }
        f.write_str("cannot connect to the cluster")?;
        for (at, (address, what)) in self.tried.iter().enumerate() {
            let mark = if at == 0 { ':' } else { ';' };
            write!(f, "{mark} {address}: {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_happened_at_each_address() {
        assert_eq!(
            ConnectError { tried: Vec::new() }.to_string(),
            "cannot connect to the cluster: no address was given"
        );
        let tried = vec![("a:1".into(), "left".into()), ("b:2".into(), "unreachable".into())];
        assert_eq!(
            ConnectError { tried }.to_string(),
            "cannot connect to the cluster: a:1: left; b:2: unreachable"
        );
    }
}
