//! Accepted names of a definition: first come, first served, within an API group
//! (k8s.io/apiextensions-apiserver, `pkg/controller/status/naming_controller.go`).

use std::collections::HashSet;

use smol_str::SmolStr;

use super::definition::DefinitionNames;

/// The names that are in use in a group: the accepted names of its definitions.
#[derive(Debug, Default)]
pub struct TakenNames {
    resources: HashSet<SmolStr>,
    kinds: HashSet<SmolStr>,
}

impl TakenNames {
    /// Adds the names of a definition. The definition in question must not be added: its own names do not
    /// conflict.
    pub fn add(&mut self, names: &DefinitionNames) {
        let resources = [&names.plural, &names.singular].into_iter().chain(&names.short_names);
        self.resources.extend(resources.filter(|n| !n.is_empty()).cloned());
        let kinds = [&names.kind, &names.list_kind].into_iter();
        self.kinds.extend(kinds.filter(|n| !n.is_empty()).cloned());
    }
}

/// A naming conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameConflict {
    /// The reason of the condition, like `PluralConflict`.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: String,
}

/// The accepted names of a definition, and the conflict of the others. Of several conflicts the last one is
/// reported, as upstream does.
pub fn accept_names(
    wanted: &DefinitionNames,
    granted: &DefinitionNames,
    taken: &TakenNames,
) -> (DefinitionNames, Option<NameConflict>) {
    let mut names = granted.clone();
    let mut conflict = None;
    let mut one = |wanted: &SmolStr, granted: &mut SmolStr, taken: &HashSet<SmolStr>, reason| match wanted
        != granted
        && taken.contains(wanted)
    {
        true => conflict = Some(NameConflict { reason, message: format!("{wanted:?} is already in use") }),
        false => granted.clone_from(wanted),
    };
    one(&wanted.plural, &mut names.plural, &taken.resources, "PluralConflict");
    one(&wanted.singular, &mut names.singular, &taken.resources, "SingularConflict");
    if wanted.short_names != granted.short_names {
        let in_use: Vec<String> = wanted
            .short_names
            .iter()
            .filter(|name| !granted.short_names.contains(name) && taken.resources.contains(*name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match in_use.as_slice() {
            [] => names.short_names.clone_from(&wanted.short_names),
            [message] => {
                conflict = Some(NameConflict { reason: "ShortNamesConflict", message: message.clone() });
            }
            several => {
                let message = format!("[{}]", several.join(", "));
                conflict = Some(NameConflict { reason: "ShortNamesConflict", message });
            }
        }
    }
    let mut one = |wanted: &SmolStr, granted: &mut SmolStr, reason| match wanted != granted
        && taken.kinds.contains(wanted)
    {
        true => conflict = Some(NameConflict { reason, message: format!("{wanted:?} is already in use") }),
        false => granted.clone_from(wanted),
    };
    one(&wanted.kind, &mut names.kind, "KindConflict");
    one(&wanted.list_kind, &mut names.list_kind, "ListKindConflict");
    names.categories.clone_from(&wanted.categories);
    (names, conflict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plural: &str, singular: &str, kind: &str, short: &[&str]) -> DefinitionNames {
        DefinitionNames {
            plural: plural.into(),
            singular: singular.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List").into(),
            short_names: short.iter().map(SmolStr::new).collect(),
            categories: Vec::new(),
        }
    }

    #[test]
    fn names_by_table() {
        let mut taken = TakenNames::default();
        taken.add(&names("cars", "car", "Car", &["c"]));
        let rows = [
            (names("boats", "boat", "Boat", &["b"]), None),
            (names("cars", "boat", "Boat", &[]), Some("PluralConflict")),
            (names("boats", "car", "Boat", &[]), Some("SingularConflict")),
            (names("boats", "boat", "Boat", &["c"]), Some("ShortNamesConflict")),
            (names("boats", "boat", "Car", &[]), Some("ListKindConflict")),
            // A short name must differ from other plural names.
            (names("boats", "boat", "Boat", &["cars"]), Some("ShortNamesConflict")),
        ];
        for (wanted, expected) in rows {
            let (granted, conflict) = accept_names(&wanted, &DefinitionNames::default(), &taken);
            assert_eq!(conflict.as_ref().map(|c| c.reason), expected, "{wanted:?}");
            assert_eq!(granted == wanted, expected.is_none(), "{wanted:?}");
        }
    }

    #[test]
    fn what_was_granted_stays_when_another_name_is_refused() {
        let own = names("boats", "boat", "Boat", &["b"]);
        let mut taken = TakenNames::default();
        taken.add(&own);
        taken.add(&names("cars", "car", "Car", &["c"]));
        let wanted = names("boats", "boat", "Boat", &["b", "c"]);
        let (granted, conflict) = accept_names(&wanted, &own, &taken);
        assert_eq!(granted, own);
        assert_eq!(conflict.unwrap().message, "\"c\" is already in use");
        assert_eq!(accept_names(&own, &own, &taken), (own.clone(), None), "own names do not conflict");
    }
}
