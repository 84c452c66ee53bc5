//! The grammar of label selectors: `x in (a,,b), y, !z, w != v, n > 5`.
//!
//! The tokens are upstream's, with its oddities: `in` and `notin` are operators only after a key, so
//! `in in (in)` is a requirement; a NUL ends a word, and outside of a word it ends the selector.

use super::error::{LabelError, RequirementError, SelectorError};
use super::requirement::{Operator, Requirement};
use crate::names;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    In,
    NotIn,
    Word,
}

impl Token {
    /// As a key or value: there the operators `in` and `notin` are words.
    fn as_value(self) -> Token {
        match self {
            Token::In | Token::NotIn => Token::Word,
            other => other,
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    token: Token,
    literal: &'a str,
}

/// Parses a whole selector into its requirements, in the order in which they stand.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { rest: text, token: Token::End, literal: "" };
    parser.advance();
    let unexpected = |parser: &Parser<'_>, expected| {
        Err(SelectorError::Unexpected { found: parser.literal.to_owned(), expected })
    };
    let mut requirements = Vec::new();
    loop {
        match parser.token.as_value() {
            Token::End => return Ok(requirements),
            Token::Word | Token::Not => {}
            _ => return unexpected(&parser, "!, identifier, or 'end of string'"),
        }
        requirements.push(parser.requirement().map_err(SelectorError::Requirement)?);
        match parser.token {
            Token::End => return Ok(requirements),
            Token::Comma => parser.advance(),
            _ => return unexpected(&parser, "',' or 'end of string'"),
        }
        if !matches!(parser.token.as_value(), Token::Word | Token::Not) {
            return unexpected(&parser, "identifier after ','");
        }
    }
}

impl<'a> Parser<'a> {
    /// Reads the next token into `token` and `literal`.
    fn advance(&mut self) {
        let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let starts = |symbol: &str| text.starts_with(symbol);
        let (token, length) = match text.bytes().next() {
            None | Some(0) => (Token::End, 0),
            Some(b'(') => (Token::Open, 1),
            Some(b')') => (Token::Close, 1),
            Some(b',') => (Token::Comma, 1),
            Some(b'>') => (Token::Greater, 1),
            Some(b'<') => (Token::Less, 1),
            Some(b'=') if starts("==") => (Token::DoubleEquals, 2),
            Some(b'=') => (Token::Equals, 1),
            Some(b'!') if starts("!=") => (Token::NotEquals, 2),
            Some(b'!') => (Token::Not, 1),
            Some(_) => {
                let end = |c| {
                    matches!(c, '\0' | '=' | '!' | '(' | ')' | ',' | '>' | '<' | ' ' | '\t' | '\r' | '\n')
                };
                (Token::Word, text.find(end).unwrap_or(text.len()))
            }
        };
        (self.literal, self.rest) = text.split_at(length);
        self.token = match (token, self.literal) {
            (Token::Word, "in") => Token::In,
            (Token::Word, "notin") => Token::NotIn,
            (token, _) => token,
        };
        if token == Token::Word {
            self.rest = self.rest.strip_prefix('\0').unwrap_or(self.rest);
        }
    }

    fn unexpected<T>(&self, expected: &'static str) -> Result<T, RequirementError> {
        Err(RequirementError::Unexpected { found: self.literal.to_owned(), expected })
    }

    fn requirement(&mut self) -> Result<Requirement, RequirementError> {
        let absent = self.token == Token::Not;
        if absent {
            self.advance();
        }
        if self.token.as_value() != Token::Word {
            return self.unexpected("identifier");
        }
        let key = self.literal;
        if let Some(error) = LabelError::of("<nil>", key, &names::qualified_name_errors(key)) {
            return Err(RequirementError::Invalid(vec![error]));
        }
        self.advance();
        const NO_VALUES: [&str; 0] = [];
        if absent {
            return Requirement::new(key, Operator::DoesNotExist, NO_VALUES);
        }
        if matches!(self.token, Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, NO_VALUES);
        }
        let operator = match self.token {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            _ => return self.unexpected("in, notin, =, ==, !=, gt, lt"),
        };
        self.advance();
        match operator {
            Operator::In | Operator::NotIn => Requirement::new(key, operator, self.value_list()?),
            _ => Requirement::new(key, operator, [self.single_value()?]),
        }
    }

    /// One value, which may be omitted: `x=` is the empty string.
    fn single_value(&mut self) -> Result<&'a str, RequirementError> {
        match self.token.as_value() {
            Token::End | Token::Comma => Ok(""),
            Token::Word => {
                let value = self.literal;
                self.advance();
                Ok(value)
            }
            _ => self.unexpected("identifier"),
        }
    }

    /// Values in parentheses; an omitted one is the empty string.
    fn value_list(&mut self) -> Result<BTreeSet<&'a str>, RequirementError> {
        if self.token != Token::Open {
            return Err(RequirementError::List(self.literal.to_owned()));
        }
        self.advance();
        let mut values = BTreeSet::new();
        match self.token.as_value() {
            Token::Word | Token::Comma | Token::Close => {}
            _ => return self.unexpected("',', ')' or identifier"),
        }
        loop {
            // A value, or its absence, before each comma and before the end.
            if self.token.as_value() == Token::Word {
                values.insert(self.literal);
                self.advance();
                if !matches!(self.token, Token::Comma | Token::Close) {
                    return self.unexpected("',' or ')'");
                }
            } else {
                values.insert("");
            }
            match self.token {
                Token::Close => {
                    self.advance();
                    return Ok(values);
                }
                Token::Comma => self.advance(),
                _ => return self.unexpected("',', or identifier"),
            }
        }
    }
}
