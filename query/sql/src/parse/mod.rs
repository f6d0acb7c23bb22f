//! From text to statements: standard SQL by sqlparser, and the few statements that only lakes have.

mod rewrite;
mod sample;
mod walk;

use datafusion::sql::sqlparser::{
    ast::Statement,
    dialect::PostgreSqlDialect,
    keywords::Keyword,
    parser::Parser,
    tokenizer::{Location, Token, TokenWithSpan, Tokenizer, TokenizerError, Word},
};

pub(crate) use rewrite::{function, is_random, operators, randoms, split_pinned, without_numbers};
pub(crate) use sample::samples;
pub(crate) use walk::{Part, expressions, walk};

use crate::{Error, Result};

/// A statement with what its text alone says.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) what: What,
    /// Whether it speaks of `_row` or `_row_id`.
    pub(crate) numbered: bool,
    pub(crate) names: Names,
}

/// What a statement is.
#[derive(Debug)]
pub(crate) enum What {
    Sql(Box<Statement>),
    Create { tag: bool, name: String, from: Option<String>, if_not_exists: bool },
    Drop { tag: bool, name: String, if_exists: bool },
    Merge { from: String },
    Show { tags: bool },
    Reindex { name: String },
    ShowIndexes,
    Begin,
    Commit,
    Rollback,
}

/// Where names stand in a statement's text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<(String, Location)>);

impl Names {
    /// The first place of a name; line 0 if it isn't there.
    pub(crate) fn place(&self, name: &str) -> Location {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or(Location { line: 0, column: 0 }, |(_, place)| *place)
    }
}

/// Words behind which a string names a version: `FROM t AT 'v1'`.
const AT: &str = "AT";

/// The statements of a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Parsed>> {
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|TokenizerError { message, location }| Error::sql(message, location))?;
    let statements = tokens.split(|token| token.token == Token::SemiColon);
    statements.filter(|tokens| tokens.iter().any(is_code)).map(statement).collect()
}

fn is_code(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_) | Token::EOF)
}

fn word(token: &TokenWithSpan) -> Option<&Word> {
    if let Token::Word(word) = &token.token { Some(word) } else { None }
}

fn is(token: &TokenWithSpan, keyword: &str) -> bool {
    word(token).is_some_and(|word| word.quote_style.is_none() && word.value.eq_ignore_ascii_case(keyword))
}

/// A name as SQL takes it: in lower case unless it is quoted.
fn name(token: &TokenWithSpan) -> Option<String> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_lowercase()),
        Token::Word(word) => Some(word.value.clone()),
        Token::SingleQuotedString(text) => Some(text.clone()),
        _ => None,
    }
}

fn statement(tokens: &[TokenWithSpan]) -> Result<Parsed> {
    let tokens: Vec<TokenWithSpan> = tokens.iter().filter(|token| is_code(token)).cloned().collect();
    let names = tokens.iter().filter_map(|token| Some((name(token)?, token.span.start))).collect();
    let numbered = tokens
        .iter()
        .filter_map(word)
        .any(|word| [crate::scan::ROW, crate::scan::ROW_ID].contains(&&*word.value.to_lowercase()));
    let what = match own(&tokens)? {
        Some(own) => own,
        None => {
            let dialect = PostgreSqlDialect {};
            let mut parser =
                Parser::new(&dialect).with_tokens_with_locations(sample::weights(rewrite::versions(tokens)));
            let parsed = parser.parse_statement()?;
            let next = parser.peek_token();
            if next.token != Token::EOF {
                return Err(Error::sql(format!("'{}' was not expected here", next.token), next.span.start));
            }
            What::Sql(Box::new(parsed))
        }
    };
    Ok(Parsed { what, numbered, names: Names(names) })
}

/// Statements about branches, tags and transactions.
fn own(tokens: &[TokenWithSpan]) -> Result<Option<What>> {
    let Some((first, rest)) = tokens.split_first() else { return Ok(None) };
    let Some(second) = rest.first() else {
        return Ok(match word(first).map(|word| word.keyword) {
            Some(Keyword::BEGIN) => Some(What::Begin),
            Some(Keyword::COMMIT) => Some(What::Commit),
            Some(Keyword::ROLLBACK) => Some(What::Rollback),
            _ => None,
        });
    };
    let versions = is(second, "BRANCH") || is(second, "TAG");
    if is(first, "BEGIN") && is(second, "TRANSACTION") && rest.len() == 1 {
        return Ok(Some(What::Begin));
    }
    if is(first, "SHOW") && (is(second, "BRANCHES") || is(second, "TAGS")) && rest.len() == 1 {
        return Ok(Some(What::Show { tags: is(second, "TAGS") }));
    }
    if is(first, "SHOW") && is(second, "INDEXES") && rest.len() == 1 {
        return Ok(Some(What::ShowIndexes));
    }
    if is(first, "REINDEX") {
        let mut words = Words { rest, last: first };
        words.take(&["INDEX"]);
        let name = words.name("the name of an index")?;
        return words.end(What::Reindex { name });
    }
    let mut words = Words { rest: &rest[1..], last: second };
    if is(first, "MERGE") && is(second, "BRANCH") {
        let from = words.name("the branch to merge")?;
        return words.end(What::Merge { from });
    }
    if !versions || !(is(first, "CREATE") || is(first, "DROP")) {
        return Ok(None);
    }
    let tag = is(second, "TAG");
    if is(first, "CREATE") {
        let if_not_exists = words.take(&["IF", "NOT", "EXISTS"]);
        let name = words.name("a name")?;
        let from = if words.take(&["FROM"]) || words.take(&[AT]) {
            Some(words.name("a branch, tag or commit")?)
        } else {
            None
        };
        words.end(What::Create { tag, name, from, if_not_exists })
    } else {
        let if_exists = words.take(&["IF", "EXISTS"]);
        let name = words.name("a name")?;
        words.end(What::Drop { tag, name, if_exists })
    }
}

/// What is left of a statement of our own.
struct Words<'a> {
    rest: &'a [TokenWithSpan],
    last: &'a TokenWithSpan,
}

impl Words<'_> {
    fn take(&mut self, keywords: &[&str]) -> bool {
        let there =
            self.rest.len() >= keywords.len() && self.rest.iter().zip(keywords).all(|(token, word)| is(token, word));
        if there {
            self.rest = &self.rest[keywords.len()..];
        }
        there
    }

    fn name(&mut self, what: &str) -> Result<String> {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                name(first)
                    .ok_or_else(|| Error::sql(format!("{what} was expected, not '{}'", first.token), first.span.start))
            }
            None => Err(Error::sql(format!("{what} was expected here"), self.last.span.end)),
        }
    }

    fn end(&self, what: What) -> Result<Option<What>> {
        match self.rest.first() {
            None => Ok(Some(what)),
            Some(token) => Err(Error::sql(format!("'{}' was not expected here", token.token), token.span.start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_a_lake_are_told_from_sql() {
        let parsed = parse("CREATE BRANCH IF NOT EXISTS \"Exp\" FROM v1; select 1; SHOW TAGS;; drop tag 'x'")
            .unwrap_or_default();
        assert_eq!(parsed.len(), 4);
        assert!(
            matches!(&parsed[0].what, What::Create { tag: false, name, from: Some(from), if_not_exists: true } if name == "Exp" && from == "v1")
        );
        assert!(matches!(parsed[1].what, What::Sql(_)));
        assert!(matches!(parsed[2].what, What::Show { tags: true }));
        assert!(matches!(&parsed[3].what, What::Drop { tag: true, name, if_exists: false } if name == "x"));
    }

    #[test]
    fn an_error_says_where() {
        let error = parse("SELECT 1;\nSELECT a b c").map(drop).map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|text| text.starts_with("line 2, column ")), "{error:?}");
        let error = parse("CREATE BRANCH a b").map(drop).map_err(|error| error.to_string());
        assert_eq!(error, Err("line 1, column 17: 'b' was not expected here".to_owned()));
    }
}
