//! PgBouncer's file of users: a name and a secret in double quotes on each line.

use std::collections::HashMap;

use causeway_protocol::scram::Verifier;
use secrecy::SecretString;

use super::model::{Credential, Overrides, User};
use super::problem::KeyPath;
use super::scalars::Word;
use super::tls::read;
use super::validate::Validation;

/// What one file holds.
#[derive(Debug, Default)]
pub(super) struct Userlist {
    /// In the order of the file; a later entry of a name counts for nothing.
    pub(super) users: Vec<(String, Credential)>,
    /// Whose secret is an MD5 hash, against which no SCRAM proof can be checked.
    pub(super) hashed: Vec<String>,
}

/// Reads `text` as PgBouncer does (`load_auth_file` in `src/loader.c`): what does not begin with a quote is a comment, and what
/// stands behind the second text is ignored. The error says in which line something is wrong; it shows no secret.
pub(super) fn parse(text: &str) -> Result<Userlist, String> {
    let mut list = Userlist::default();
    for (index, line) in text.lines().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix('"') else { continue };
        let entry = quoted(rest).and_then(|(name, rest)| {
            let (secret, _) = quoted(rest.trim_start().strip_prefix('"')?)?;
            Some((name, secret))
        });
        let Some((name, secret)) = entry.filter(|(name, _)| !name.is_empty()) else {
            return Err(format!("line {}: expected \"user\" \"secret\"", index + 1));
        };
        let is_hash = secret.len() == 35
            && secret
                .strip_prefix("md5")
                .is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_hash {
            list.hashed.push(name);
        } else if secret.starts_with("SCRAM-SHA-256$") {
            let verifier = Verifier::parse(&secret);
            let verifier = verifier.map_err(|error| format!("line {}: {error}", index + 1))?;
            list.users.push((name, Credential::Verifier(Box::new(verifier))));
        } else if !secret.is_empty() {
            list.users.push((name, Credential::Password(SecretString::from(secret))));
        }
    }
    Ok(list)
}

impl Validation<'_> {
    /// Adds the users of `file`. What the section `users` says of a name has precedence.
    pub(super) fn userlist(&mut self, file: &Word, users: &mut Vec<(String, User)>) {
        let path = KeyPath::default().key("auth").key("userlist_file");
        let text = read(&self.directory.join(&file.0), |_| Ok(()));
        let text = text.and_then(|text| String::from_utf8(text).map_err(|_| "not UTF-8".to_owned()));
        let list = match text.and_then(|text| parse(&text)) {
            Ok(list) => list,
            Err(message) => return self.refuse(path, format!("{}: {message}", file.0)),
        };
        let mut known: HashMap<String, usize> =
            users.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect();
        for (name, credential) in list.users {
            match known.get(&name).and_then(|index| users.get_mut(*index)) {
                Some((_, user)) if user.credential.is_none() => user.credential = Some(credential),
                Some(_) => {}
                None => {
                    known.insert(name.clone(), users.len());
                    users
                        .push((name, User { credential: Some(credential), overrides: Overrides::default() }));
                }
            }
        }
        if !list.hashed.is_empty() {
            let names = list.hashed.join(", ");
            self.warn(format!("auth.userlist_file: MD5 hashes are of no use to SCRAM, and these users cannot log in: {names}"));
        }
    }
}

/// The text up to the closing quote, and what stands behind that. A quote inside is doubled.
fn quoted(mut rest: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    loop {
        let (piece, behind) = rest.split_once('"')?;
        text.push_str(piece);
        match behind.strip_prefix('"') {
            Some(more) => {
                text.push('"');
                rest = more;
            }
            None => return Some((text, behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn password(credential: &Credential) -> &str {
        let Credential::Password(password) = credential else { panic!("no password") };
        password.expose_secret()
    }

    #[test]
    fn what_pgbouncer_reads() {
        let verifier = Verifier::derive(b"x", &[7; 16], 4096).to_string();
        let text = format!(
            "; who may come\n\n\"app\" \"se\"\"cret\" \"ignored\"\n  \"o\"\"k\"\t\"p\" ; more\n\"v\" \"{verifier}\"\n\
             \"old\" \"md5{}\"\n\"nobody\" \"\"\n# \"out\" \"x\"\n",
            "0123456789abcdef".repeat(2)
        );
        let list = parse(&text).unwrap();
        let names: Vec<&str> = list.users.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["app", "o\"k", "v"]);
        assert_eq!((password(&list.users[0].1), password(&list.users[1].1)), ("se\"cret", "p"));
        assert!(matches!(list.users[2].1, Credential::Verifier(_)));
        assert_eq!(list.hashed, ["old"]);
    }

    #[test]
    fn what_is_wrong_is_told_without_the_secret() {
        for wrong in ["\"a\"", "\"a\" hush", "\"a\" \"hush", "\"\" \"hush\"", "\"a\" \"SCRAM-SHA-256$hush\""]
        {
            let error = parse(&format!("\n{wrong}\n")).unwrap_err();
            assert!(error.starts_with("line 2: ") && !error.contains("hush"), "{error}");
        }
    }
}
