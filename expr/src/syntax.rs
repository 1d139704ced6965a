//! The parser: tokens to a syntax tree, by precedence climbing.
//!
//! It is written here instead of taken from a library because it must never overflow the stack on
//! untrusted input: it counts nesting and size while parsing. The tests compare it with a CEL library.

use crate::lex::{Token, lex};
use crate::limits::{EXPRESSION_DEPTH_MAX, EXPRESSION_TERMS_MAX};
use crate::term::Operator;
use serde_json::Value;

/// A syntax tree, before names are resolved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Syntax<'a> {
    Literal(Value),
    Name(&'a str),
    Member(Box<Syntax<'a>>, &'a str),
    Index(Box<Syntax<'a>>, Box<Syntax<'a>>),
    /// A call, with its receiver if it is a method call.
    Call(Option<Box<Syntax<'a>>>, &'a str, Vec<Syntax<'a>>),
    List(Vec<Syntax<'a>>),
    Object(Vec<(Syntax<'a>, Syntax<'a>)>),
    Not(Box<Syntax<'a>>),
    Negate(Box<Syntax<'a>>),
    And(Box<[Syntax<'a>; 2]>),
    Or(Box<[Syntax<'a>; 2]>),
    If(Box<[Syntax<'a>; 3]>),
    Binary(Operator, Box<[Syntax<'a>; 2]>),
}

/// CEL's reserved words. They can name a member but not a variable.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "void",
    "while",
];

type ParseResult<'a, T = Syntax<'a>> = Result<T, String>;

/// Parses one expression.
pub(crate) fn parse(source: &str) -> ParseResult<'_> {
    let tokens = lex(source)?;
    let mut reader = Parser { source, tokens, at: 0, terms: 0 };
    let tree = reader.expression(EXPRESSION_DEPTH_MAX)?;
    if reader.at < reader.tokens.len() { reader.unexpected() } else { Ok(tree) }
}

struct Parser<'a> {
    source: &'a str,
    tokens: Vec<(usize, Token<'a>)>,
    at: usize,
    terms: usize,
}

/// The precedence of an operator. `&&` and `||` have no `Operator`: they short-circuit.
fn precedence(sign: &str) -> Option<(u8, Option<Operator>)> {
    Some(match sign {
        "||" => (1, None),
        "&&" => (2, None),
        "==" => (3, Some(Operator::Equal)),
        "!=" => (3, Some(Operator::NotEqual)),
        "<" => (3, Some(Operator::Less)),
        "<=" => (3, Some(Operator::LessOrEqual)),
        ">" => (3, Some(Operator::Greater)),
        ">=" => (3, Some(Operator::GreaterOrEqual)),
        "in" => (3, Some(Operator::In)),
        "+" => (4, Some(Operator::Add)),
        "-" => (4, Some(Operator::Subtract)),
        "*" => (5, Some(Operator::Multiply)),
        "/" => (5, Some(Operator::Divide)),
        "%" => (5, Some(Operator::Modulo)),
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    fn unexpected<T>(&self) -> ParseResult<'a, T> {
        Err(match self.tokens.get(self.at) {
            Some((at, _)) => {
                let found: String = self.source[*at..].chars().take(12).collect();
                format!("not an expression: unexpected {found:?}")
            }
            None => "not an expression: unexpected end".to_owned(),
        })
    }

    fn sign(&self) -> Option<&'static str> {
        match self.tokens.get(self.at) {
            Some((_, Token::Symbol(sign))) => Some(sign),
            _ => None,
        }
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let found = self.sign() == Some(sign);
        self.at += usize::from(found);
        found
    }

    fn expect_sign(&mut self, sign: &str) -> ParseResult<'a, ()> {
        if self.take_sign(sign) { Ok(()) } else { self.unexpected() }
    }

    fn name(&mut self) -> ParseResult<'a, &'a str> {
        match self.tokens.get(self.at) {
            Some((_, Token::Name(name))) => {
                self.at += 1;
                Ok(name)
            }
            _ => self.unexpected(),
        }
    }

    fn expression(&mut self, depth: usize) -> ParseResult<'a> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("the expression is nested more than {EXPRESSION_DEPTH_MAX} levels deep"));
        };
        let condition = self.binary(1, depth)?;
        if !self.take_sign("?") {
            return Ok(condition);
        }
        let yes = self.binary(1, depth)?;
        self.expect_sign(":")?;
        Ok(Syntax::If(Box::new([condition, yes, self.expression(depth)?])))
    }

    /// Operators with a precedence of at least `least`, left-associative.
    fn binary(&mut self, least: u8, depth: usize) -> ParseResult<'a> {
        let mut left = self.unary(depth)?;
        while let Some(sign) = self.sign() {
            let Some((binds, operator)) = precedence(sign).filter(|(binds, _)| *binds >= least) else {
                break;
            };
            self.at += 1;
            let sides = Box::new([left, self.binary(binds + 1, depth)?]);
            left = match operator {
                Some(operator) => Syntax::Binary(operator, sides),
                None if sign == "||" => Syntax::Or(sides),
                None => Syntax::And(sides),
            };
        }
        Ok(left)
    }

    fn unary(&mut self, depth: usize) -> ParseResult<'a> {
        self.terms += 1;
        if self.terms > EXPRESSION_TERMS_MAX {
            return Err(format!("the expression has more than {EXPRESSION_TERMS_MAX} terms"));
        }
        let sign = self.sign().filter(|sign| matches!(*sign, "!" | "-"));
        let Some(sign) = sign else {
            return self.member(depth);
        };
        let mut count = 0;
        while self.take_sign(sign) {
            count += 1;
        }
        if count > EXPRESSION_DEPTH_MAX {
            return Err(format!("the expression is nested more than {EXPRESSION_DEPTH_MAX} levels deep"));
        }
        let mut tree = self.member(depth)?;
        for _ in 0..count {
            tree = if sign == "!" { Syntax::Not(Box::new(tree)) } else { Syntax::Negate(Box::new(tree)) };
        }
        Ok(tree)
    }

    /// A value followed by member accesses, calls and indexes.
    fn member(&mut self, depth: usize) -> ParseResult<'a> {
        let mut tree = self.primary(depth)?;
        for steps in 0.. {
            if steps > EXPRESSION_DEPTH_MAX {
                return Err(format!("the expression is nested more than {EXPRESSION_DEPTH_MAX} levels deep"));
            }
            if self.take_sign(".") {
                let name = self.name()?;
                tree = if self.take_sign("(") {
                    Syntax::Call(Some(Box::new(tree)), name, self.parse_items(")", depth)?)
                } else {
                    Syntax::Member(Box::new(tree), name)
                };
            } else if self.take_sign("[") {
                let at = self.expression(depth)?;
                self.expect_sign("]")?;
                tree = Syntax::Index(Box::new(tree), Box::new(at));
            } else {
                break;
            }
        }
        Ok(tree)
    }

    fn primary(&mut self, depth: usize) -> ParseResult<'a> {
        match self.tokens.get(self.at) {
            Some((_, Token::Literal(value))) => {
                let value = value.clone();
                self.at += 1;
                Ok(Syntax::Literal(value))
            }
            Some((_, Token::Name(name))) => {
                let name = *name;
                if RESERVED.contains(&name) {
                    return Err(format!("{name} is a reserved word"));
                }
                self.at += 1;
                match self.sign() {
                    Some("(") => {
                        self.at += 1;
                        Ok(Syntax::Call(None, name, self.parse_items(")", depth)?))
                    }
                    Some("{") => Err("message literals are not supported".to_owned()),
                    _ => Ok(Syntax::Name(name)),
                }
            }
            Some((_, Token::Symbol("("))) => {
                self.at += 1;
                let tree = self.expression(depth)?;
                self.expect_sign(")")?;
                Ok(tree)
            }
            Some((_, Token::Symbol("["))) => {
                self.at += 1;
                Ok(Syntax::List(self.parse_items("]", depth)?))
            }
            Some((_, Token::Symbol("{"))) => {
                self.at += 1;
                self.entries(depth)
            }
            Some((_, Token::Symbol("."))) => Err("a name cannot begin with a dot".to_owned()),
            _ => self.unexpected(),
        }
    }

    /// Comma-separated expressions. A list may have a trailing comma.
    fn parse_items(&mut self, close: &str, depth: usize) -> ParseResult<'a, Vec<Syntax<'a>>> {
        let mut items = Vec::new();
        // CEL allows the trailing comma even in an empty list.
        let bare = close == "]" && self.take_sign(",");
        if self.take_sign(close) {
            return Ok(items);
        }
        if bare {
            return self.unexpected();
        }
        loop {
            items.push(self.expression(depth)?);
            if self.take_sign(close) {
                return Ok(items);
            }
            self.expect_sign(",")?;
            if close == "]" && self.take_sign(close) {
                return Ok(items);
            }
        }
    }

    fn entries(&mut self, depth: usize) -> ParseResult<'a> {
        let mut entries = Vec::new();
        if self.take_sign(",") {
            self.expect_sign("}")?;
            return Ok(Syntax::Object(entries));
        }
        while !self.take_sign("}") {
            let name = self.expression(depth)?;
            self.expect_sign(":")?;
            entries.push((name, self.expression(depth)?));
            if !self.take_sign(",") {
                self.expect_sign("}")?;
                break;
            }
        }
        Ok(Syntax::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    const WORDS: &[&str] = &[
        "a",
        "b",
        "in",
        "true",
        "null",
        "1",
        "2.5",
        ".5",
        "1e3",
        "0x1F",
        "'t'",
        "\"t\"",
        "r'\\'",
        "'''x'y'''",
        "'\\u00e9\\n'",
        "+",
        "-",
        "*",
        "/",
        "%",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "&&",
        "||",
        "!",
        "?",
        ":",
        ".",
        ",",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".f(",
        ".m",
        "g(",
        "if",
        "[]",
        "{}",
        "()",
    ];

    /// Whether the library accepts it.
    fn library(source: &str) -> bool {
        cel::Env::default().with_optional_support(false).parser().parse(source).is_ok()
    }

    /// The library's parser uses much stack per nesting level.
    fn shallow(source: &str) -> bool {
        source.bytes().filter(|byte| b"([{?!-".contains(byte)).count() < 10
    }

    /// Message literals and names that begin with a dot are CEL, but not supported here.
    fn ours_to_refuse(reason: &str, source: &str) -> bool {
        let message = reason.contains("message literals") || (reason.contains("reserved") && source.contains('{'));
        message || reason.contains("begin with a dot")
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn we_read_what_the_library_reads(words in prop::collection::vec(prop::sample::select(WORDS), 1..9)) {
            let source = words.join(" ");
            if shallow(&source) {
                match parse(&source) {
                    Ok(_) => prop_assert!(library(&source), "only we accept {source}"),
                    Err(reason) => {
                        prop_assert!(ours_to_refuse(&reason, &source) || !library(&source), "only we refuse {source}: {reason}");
                    }
                }
            }
        }
    }

    #[test]
    fn operators_bind_as_in_cel() {
        let shape = |source| format!("{:?}", parse(source).unwrap());
        for (one, other) in [
            ("a + b * c", "a + (b * c)"),
            ("a - b - c", "(a - b) - c"),
            ("a || b && c == d", "a || (b && (c == d))"),
            ("a ? b : c ? d : e", "a ? b : (c ? d : e)"),
            ("-a.b * !c", "(-(a.b)) * (!c)"),
            ("a < b == c", "(a < b) == c"),
            ("a in b || c", "(a in b) || c"),
        ] {
            assert_eq!(shape(one), shape(other), "{one}");
        }
    }
}
