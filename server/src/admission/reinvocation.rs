//! What a request remembers between the two rounds of the plugins that change objects by others' wishes: webhooks and policies.
//!
//! What one of them changes the others get to see once more: all plugins run a second time, and of webhooks and policies those
//! that want it (`reinvocationPolicy: IfNeeded`) and were asked before the change. Upstream: k8s.io/apiserver
//! `pkg/admission/reinvocation.go` and the `reinvocationcontext.go` of both plugins.

use std::collections::HashSet;

use plinth_codec::Value;

/// Both rounds of a request.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Whether this is the second round.
    pub second: bool,
    /// Whether something was changed, so that there has to be a second round.
    pub changed: bool,
    pub webhooks: Asked,
    pub policies: Asked,
}

/// Names one webhook (configuration and name), or one use of a policy (policy, binding, parameters).
pub(super) type Id = (String, String, String);

/// What one plugin asked.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Who was asked and wants to be asked again when something changes.
    waiting: HashSet<Id>,
    /// Who is to be asked again.
    again: HashSet<Id>,
    /// The object when the plugin had run, where somebody waits.
    output: Option<Value>,
}

impl Asked {
    /// The plugin runs. In a second round those that wait are asked again when other plugins have changed the object.
    pub fn begin(&mut self, second: bool, object: &Value) {
        if second && self.output.as_ref().is_some_and(|output| output != object) {
            self.changed();
        }
    }

    /// Whether somebody is not asked in this round.
    pub fn passes_by(&self, second: bool, id: &Id) -> bool {
        second && !self.again.contains(id)
    }

    /// Somebody is asked who wants to be asked again when something changes later.
    pub fn wait(&mut self, id: Id) {
        self.waiting.insert(id);
    }

    /// The object has changed.
    pub fn changed(&mut self) {
        self.again.extend(self.waiting.drain());
    }

    /// The plugin has run.
    pub fn end(&mut self, object: &Value) {
        self.output = (!self.waiting.is_empty()).then(|| object.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    #[test]
    fn those_asked_before_a_change_are_asked_again() {
        let id = |name: &str| (name.to_owned(), String::new(), String::new());
        let (one, other) = (tree!({ "a": 1 }), tree!({ "a": 2 }));
        let mut asked = Asked::default();
        asked.begin(false, &one);
        assert!(!asked.passes_by(false, &id("a")));
        asked.wait(id("a"));
        asked.changed();
        asked.wait(id("b"));
        asked.end(&one);
        // Nobody else has changed the object: who was asked after the change has seen it.
        asked.begin(true, &one);
        assert!(!asked.passes_by(true, &id("a")) && asked.passes_by(true, &id("b")));
        // Somebody has.
        asked.begin(true, &other);
        assert!(!asked.passes_by(true, &id("b")) && asked.passes_by(true, &id("c")));
    }
}
