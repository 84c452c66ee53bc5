//! State of the two rounds of mutating webhooks and policies in a request.
//!
//! A change by one of them is shown to the others in a second round: all plugins run again, and of webhooks
//! and policies those with `reinvocationPolicy: IfNeeded` that were called before the change. Upstream:
//! k8s.io/apiserver `pkg/admission/reinvocation.go` and the `reinvocationcontext.go` of both plugins.

use std::collections::HashSet;

use plinth_codec::Value;

/// Both rounds of a request.
#[derive(Debug, Default)]
pub(super) struct Reinvocation {
    /// Whether this is the second round.
    pub second: bool,
    /// Whether the object changed, so that a second round is needed.
    pub changed: bool,
    pub webhooks: PluginState,
    pub policies: PluginState,
}

/// Identifies a webhook (configuration and name), or a use of a policy (policy, binding, parameters).
pub(super) type Id = (String, String, String);

/// The state of one plugin.
#[derive(Debug, Default)]
pub(super) struct PluginState {
    /// Called ones with reinvocation that have not missed a change yet.
    called: HashSet<Id>,
    /// Those to be called again.
    reinvoked: HashSet<Id>,
    /// The object after the plugin's last run, if there are called ones with reinvocation.
    output: Option<Value>,
}

impl PluginState {
    /// Begins a run of the plugin. In the second round the called ones with reinvocation are called again if
    /// other plugins have changed the object.
    pub(super) fn begin(&mut self, second: bool, object: &Value) {
        if second && self.output.as_ref().is_some_and(|output| output != object) {
            self.record_change();
        }
    }

    /// Whether a webhook or policy is skipped in this round.
    pub(super) fn skips(&self, second: bool, id: &Id) -> bool {
        second && !self.reinvoked.contains(id)
    }

    /// Records a call of a webhook or policy with reinvocation.
    pub(super) fn record_call(&mut self, id: Id) {
        self.called.insert(id);
    }

    /// Records a change of the object.
    pub(super) fn record_change(&mut self) {
        self.reinvoked.extend(self.called.drain());
    }

    /// Ends a run of the plugin.
    pub(super) fn end(&mut self, object: &Value) {
        self.output = (!self.called.is_empty()).then(|| object.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    #[test]
    fn those_called_before_a_change_are_called_again() {
        let id = |name: &str| (name.to_owned(), String::new(), String::new());
        let (one, other) = (tree!({ "a": 1 }), tree!({ "a": 2 }));
        let mut state = PluginState::default();
        state.begin(false, &one);
        assert!(!state.skips(false, &id("a")));
        state.record_call(id("a"));
        state.record_change();
        state.record_call(id("b"));
        state.end(&one);
        // No other plugin has changed the object: one that was called after the change has seen it.
        state.begin(true, &one);
        assert!(!state.skips(true, &id("a")) && state.skips(true, &id("b")));
        // Another plugin has.
        state.begin(true, &other);
        assert!(!state.skips(true, &id("b")) && state.skips(true, &id("c")));
    }
}
