//! The layouts of a schema with the wire forms of unset fields and empty messages, which the encoder itself
//! makes, once per schema.

use super::encode::empty_message;
use super::wire::ReverseBuffer;
use crate::schema::layout::{FieldLayout, Form, Layouts, ValueLayout};
use crate::schema::{Schema, TypeId};

/// The layouts of a schema's structs; compiled at the first call.
pub(super) fn layouts(schema: &Schema) -> &Layouts {
    schema.layouts.get_or_init(|| {
        let mut layouts = Layouts::new(schema);
        let mut done = vec![false; layouts.messages.len()];
        for id in 0..layouts.messages.len() {
            layouts.fill_empty(TypeId(id as u32), &mut done);
        }
        layouts.fill_zeros();
        layouts
    })
}

impl Layouts {
    /// Computes the wire form of unset fields, once the empty messages are known.
    fn fill_zeros(&mut self) {
        for id in 0..self.messages.len() {
            let Some(message) = &self.messages[id] else { continue };
            let zero = |field: &FieldLayout| {
                let mut out = ReverseBuffer::with_capacity(16);
                if field.is_filled() && field.number != 0 {
                    out.put_zero(field.number, field.shape, self);
                }
                out.as_slice().into()
            };
            let zeros: Vec<Box<[u8]>> = message.fields.iter().map(zero).collect();
            if let Some(message) = &mut self.messages[id] {
                for (field, zero) in message.fields.iter_mut().zip(zeros) {
                    field.zero = zero;
                }
            }
        }
    }

    /// Computes the empty form of a message, after those that it holds by value. Go types cannot contain
    /// themselves by value, so the recursion ends; `done` ensures it.
    fn fill_empty(&mut self, id: TypeId, done: &mut [bool]) {
        match done.get_mut(id.0 as usize) {
            Some(done) if !*done => *done = true,
            _ => return,
        }
        let Some(message) = self.message(id) else { return };
        let held: Vec<TypeId> = message
            .fields
            .iter()
            .filter(|f| f.form == Form::One && !f.pointer)
            .filter_map(|f| match f.shape {
                ValueLayout::Message(inner) => Some(inner),
                _ => None,
            })
            .collect();
        for inner in held {
            self.fill_empty(inner, done);
        }
        let empty = self.message(id).map(|m| empty_message(self, m)).unwrap_or_default();
        if let Some(Some(message)) = self.messages.get_mut(id.0 as usize) {
            message.empty = empty.into();
        }
    }
}
