//! Checks that defaults have no unknown fields and are valid.

use plinth_codec::field::{FieldError, Path};
use plinth_codec::tree;
use plinth_codec::value::{level, Map, Value};
use smol_str::SmolStr;

use crate::metadata::Coercer;
use crate::node::{Node, NodeId};
use crate::props::Props;
use crate::{embedded, prune, validate};

/// The errors of the defaults of a structural schema; `nodes` is its compiled form.
pub(crate) fn errors(
    nodes: &[Node],
    root: NodeId,
    path: &Path<'_>,
    schema: Props<'_>,
    require_pruned: bool,
) -> Vec<FieldError> {
    let mut check = Check { nodes, require_pruned, errors: Vec::new() };
    check.walk(path, schema, root, true, &Enclosing::Root, root);
    check.errors
}

/// The position of a value in the metadata of the enclosing object.
enum Enclosing<'a> {
    /// Not in metadata.
    Root,
    Field(&'a Enclosing<'a>, &'a SmolStr),
    Element(&'a Enclosing<'a>),
}

impl Enclosing<'_> {
    /// The enclosing object with only the value.
    fn wrap(&self, value: Value) -> Value {
        match self {
            Enclosing::Root => value,
            Enclosing::Field(outer, name) => {
                outer.wrap(Value::Object([((*name).clone(), value)].into_iter().collect::<Map>()))
            }
            Enclosing::Element(outer) => outer.wrap(Value::Array(vec![value])),
        }
    }

    fn is_in_metadata(&self) -> bool {
        !matches!(self, Enclosing::Root)
    }
}

struct Check<'a> {
    nodes: &'a [Node],
    require_pruned: bool,
    errors: Vec<FieldError>,
}

impl<'a> Check<'a> {
    fn walk(
        &mut self,
        path: &Path<'_>,
        schema: Props<'_>,
        id: NodeId,
        is_object: bool,
        around: &Enclosing<'_>,
        object: NodeId,
    ) {
        // Additional properties can have no defaults.
        let Some(node) = self.nodes.get(id.index()).filter(|n| n.defaults_below) else { return };
        level(|| self.walk_here(path, schema, id, node, is_object, around, object));
    }

    #[allow(clippy::too_many_arguments, reason = "the walk's state, all of which changes on the way")]
    fn walk_here(
        &mut self,
        path: &Path<'_>,
        schema: Props<'_>,
        id: NodeId,
        node: &'a Node,
        is_object: bool,
        around: &Enclosing<'_>,
        object: NodeId,
    ) {
        let is_object = is_object || node.embedded_resource;
        let (around, object) = match node.embedded_resource {
            true => (&Enclosing::Root, id),
            false => (around, object),
        };
        if let Some(default) = schema.get("default") {
            let path = path.child("default");
            match around.is_in_metadata() {
                true => self.metadata(&path, default, id, &around.wrap(default.clone()), object),
                false => self.value(&path, default, id, node),
            }
        }
        if let (Some(schema), Some(id)) = (schema.item(), node.items) {
            let path = path.child("items");
            match around.is_in_metadata() {
                true => self.walk(&path, schema, id, false, &Enclosing::Element(around), object),
                false => self.walk(&path, schema, id, false, &Enclosing::Root, object),
            }
        }
        let fields = path.child("properties");
        for ((name, schema), (_, id)) in schema.named("properties").zip(&node.properties) {
            let path = fields.key(name);
            let inside = around.is_in_metadata() || (is_object && prune::is_meta_field(name));
            match inside {
                true => self.walk(&path, schema, *id, false, &Enclosing::Field(around, name), object),
                false => self.walk(&path, schema, *id, false, &Enclosing::Root, object),
            }
        }
    }

    fn value(&mut self, path: &Path<'_>, default: &Value, id: NodeId, node: &Node) {
        if self.require_pruned {
            let mut pruned = default.clone();
            prune::prune_default(self.nodes, node, &mut pruned, false);
            if pruned != *default {
                self.errors.push(FieldError::invalid(path, default, "must not have unknown fields"));
            }
        }
        let embedded = node.embedded_resource;
        let mut coercer = Coercer::strict(self.nodes);
        if let Err(error) = coercer.value(path, &mut default.clone(), node, embedded) {
            return self.errors.push(error);
        }
        let mut errors = embedded::errors(self.nodes, id, path, default, embedded);
        if errors.is_empty() {
            errors = validate::errors(self.nodes, id, path, default);
        }
        self.errors.append(&mut errors);
    }

    /// A default of a field of metadata: an object with nothing else must be valid.
    fn metadata(&mut self, path: &Path<'_>, default: &Value, id: NodeId, around: &Value, object: NodeId) {
        let mut whole = tree!({ "apiVersion": "validation/v1", "kind": "Validation" });
        if let (Some(whole), Some(around)) = (whole.as_object_mut(), around.as_object()) {
            around.iter().for_each(|(name, value)| drop(whole.insert(name.clone(), value.clone())));
        }
        let Some(node) = self.nodes.get(object.index()) else { return };
        let mut coercer = Coercer::strict(self.nodes);
        let wrong = match coercer.value(&Path::Root, &mut whole, node, true) {
            Err(error) => vec![error],
            Ok(()) => embedded::errors(self.nodes, object, &Path::Root, &whole, true),
        };
        if wrong.is_empty() {
            self.errors.extend(validate::errors(self.nodes, id, path, default));
            return;
        }
        let texts: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let why = format!("must result in valid metadata: {all}");
        self.errors.push(FieldError::invalid(path, default, why));
    }
}
