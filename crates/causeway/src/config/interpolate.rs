//! `${NAME}` in text values stands for an environment variable; `$${` for a literal `${`.

use super::document::Node;
use super::problem::{KeyPath, Problem};

/// Looks up environment variables.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// A copy of `node` with every reference replaced. What a variable holds is not looked into again.
pub(super) fn interpolate(
    node: &Node,
    environment: &Environment<'_>,
    path: &KeyPath,
) -> Result<Node, Problem> {
    Ok(match node {
        Node::Text(text) => {
            let expanded =
                expand(text, environment).map_err(|message| Problem::value(path.clone(), message))?;
            Node::Text(expanded)
        }
        Node::List(nodes) => {
            let entry = |(index, node)| interpolate(node, environment, &path.index(index));
            Node::List(nodes.iter().enumerate().map(entry).collect::<Result<_, _>>()?)
        }
        Node::Map(entries) => {
            let entry = |(key, node): &(String, Node)| {
                Ok((key.clone(), interpolate(node, environment, &path.key(key))?))
            };
            Node::Map(entries.iter().map(entry).collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    })
}

fn expand(text: &str, environment: &Environment<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = rest.split_at(start);
        if let Some(literal) = before.strip_suffix('$') {
            expanded.push_str(literal);
            expanded.push_str("${");
            rest = after.get(2..).unwrap_or_default();
            continue;
        }
        expanded.push_str(before);
        let Some((name, tail)) = after.get(2..).and_then(|inner| inner.split_once('}')) else {
            return Err("`${` without `}`; write `$${` for the characters themselves".to_owned());
        };
        let Some(value) = environment(name) else {
            return Err(format!("the environment variable {name:?} is not set"));
        };
        expanded.push_str(&value);
        rest = tail;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_once() {
        let environment = |name: &str| match name {
            "A" => Some("${B}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        assert_eq!(expand("x${A}y${EMPTY}z", &environment).unwrap(), "x${B}yz");
        assert_eq!(expand("$${A} $5 {A} $", &environment).unwrap(), "${A} $5 {A} $");
        assert!(expand("${B}", &environment).unwrap_err().contains("\"B\" is not set"));
        assert!(expand("${A", &environment).is_err());
    }
}
