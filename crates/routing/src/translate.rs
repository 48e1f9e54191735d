//! From PostgreSQL's tokens to those of the parser.
//!
//! The parser never sees the text: its own tokenizer would read some of it differently than the server does. What
//! PostgreSQL's grammar has and the parser's lacks is left out here, wherever leaving it out cannot hide a name.

mod respell;

use sqlparser::tokenizer::{Token as Out, Word};

use crate::builtin;
use crate::lexer::{Token, TokenKind};
use crate::symbols::Name;
use crate::text;

/// The tokens of one statement as the parser takes them, and what only they tell.
#[derive(Debug, Default)]
pub(crate) struct Translated {
    pub(crate) tokens: Vec<Out>,
    /// Every operator, schema-qualified where it was written so.
    pub(crate) operators: Vec<Name>,
    /// Names before an opening parenthesis which no syntax of PostgreSQL explains: each must turn out to be a
    /// call, a type or a list of columns.
    pub(crate) called: Vec<Box<str>>,
    /// VARIADIC occurs, so that the numbers of arguments mean nothing.
    pub(crate) variadic: bool,
}

struct Translator<'a> {
    sql: &'a str,
    input: &'a [Token],
    position: usize,
    out: Translated,
    /// Within `substring(x SIMILAR y ESCAPE z)`, whose words become commas.
    similar: bool,
    open: Vec<Open>,
}

/// What an open parenthesis or bracket belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// Anything else.
    Other,
    /// ROWS FROM: commas become cross joins.
    RowsFrom,
    /// XMLFOREST, XMLATTRIBUTES: expressions have names.
    XmlNamed,
}

/// The tokens for the parser; `None` when some have no counterpart.
pub(crate) fn translate(sql: &str, input: &[Token]) -> Option<Translated> {
    let out = Translated { tokens: Vec::with_capacity(input.len()), ..Translated::default() };
    let mut translator = Translator { sql, input, position: 0, out, similar: false, open: Vec::new() };
    while let Some(token) = translator.input.get(translator.position) {
        if !translator.special(*token)? {
            translator.plain(*token)?;
            translator.position += 1;
        }
    }
    Some(translator.out)
}

/// Whether the tokens say, adjacent and outside any name, that rows are locked or data modified. The walk over the
/// syntax tree says so too; this is its cross-check, and knows the lock modes that the parser does not.
pub(crate) fn locks(sql: &str, tokens: &[Token]) -> bool {
    let word = |i: usize, word| tokens.get(i).is_some_and(|token| text::is_word(*token, sql, word));
    (0..tokens.len()).any(|i| {
        word(i, "for")
            && (word(i + 1, "update")
                || word(i + 1, "share")
                || (word(i + 1, "no") && word(i + 2, "key"))
                || (word(i + 1, "key") && word(i + 2, "share")))
    })
}

/// Whether the tokens look like a data-modifying statement inside another, or like SELECT INTO.
pub(crate) fn modifies(sql: &str, tokens: &[Token]) -> bool {
    let word = |i: usize, word| tokens.get(i).is_some_and(|token| text::is_word(*token, sql, word));
    let kind = |i: usize| tokens.get(i).map(|token| token.kind);
    (0..tokens.len()).any(|i| {
        let before = i.checked_sub(1);
        let opens =
            before.is_none_or(|b| matches!(kind(b), Some(TokenKind::LeftParen | TokenKind::RightParen)));
        let labelled = before.is_some_and(|b| word(b, "as") || kind(b) == Some(TokenKind::Dot));
        (opens && (word(i, "insert") || word(i, "merge")) && word(i + 1, "into"))
            || (opens && word(i, "delete") && word(i + 1, "from"))
            || (opens && word(i, "update") && kind(i + 1).is_some_and(TokenKind::is_name))
            || (word(i, "into") && !labelled)
    })
}

// === impl Translator ===

impl Translator<'_> {
    fn at(&self, offset: usize) -> Option<Token> {
        self.input.get(self.position + offset).copied()
    }

    fn word(&self, offset: usize, word: &str) -> bool {
        self.at(offset).is_some_and(|token| text::is_word(token, self.sql, word))
    }

    fn kind(&self, offset: usize) -> Option<TokenKind> {
        self.at(offset).map(|token| token.kind)
    }

    fn previous(&self) -> Option<Token> {
        self.position.checked_sub(1).and_then(|i| self.input.get(i)).copied()
    }

    fn previous_word(&self, word: &str) -> bool {
        self.previous().is_some_and(|token| text::is_word(token, self.sql, word))
    }

    /// Handles what is not one token for one token; `false` when there is nothing of the kind here.
    fn special(&mut self, token: Token) -> Option<bool> {
        if token.kind == TokenKind::UnicodeWord || token.kind == TokenKind::UnicodeString {
            self.unicode(token)?;
            return Some(true);
        }
        // `(expression).*` names nothing that the expression does not.
        if token.kind == TokenKind::Dot
            && self.previous().is_some_and(|p| p.kind == TokenKind::RightParen)
            && self.at(1).is_some_and(|star| star.text(self.sql.as_bytes()) == b"*")
        {
            self.position += 2;
            return Some(true);
        }
        if token.kind != TokenKind::Word || self.previous().is_some_and(|p| p.kind == TokenKind::Dot) {
            return Some(false);
        }
        let skip = match () {
            () if self.word(0, "operator") && self.kind(1) == Some(TokenKind::LeftParen) => {
                self.operator()?;
                0
            }
            () if self.word(0, "for") && self.word(1, "read") && self.word(2, "only") => 3,
            () if (self.word(0, "symmetric") || self.word(0, "asymmetric"))
                && self.previous_word("between") =>
            {
                1
            }
            () if self.word(0, "variadic")
                && self
                    .previous()
                    .is_some_and(|p| matches!(p.kind, TokenKind::LeftParen | TokenKind::Comma)) =>
            {
                self.out.variadic = true;
                1
            }
            () if self.word(0, "exclude") => self.frame_exclusion(),
            () if self.word(0, "search") || self.word(0, "cycle") => self.search_or_cycle(),
            () if self.word(0, "rows")
                && self.word(1, "from")
                && self.kind(2) == Some(TokenKind::LeftParen) =>
            {
                self.out.tokens.push(Out::LParen);
                self.open.push(Open::RowsFrom);
                3
            }
            () if self.word(0, "similar") && !self.word(1, "to") => {
                self.similar = true;
                self.out.tokens.push(Out::Comma);
                1
            }
            () if self.similar && self.word(0, "escape") => {
                self.similar = false;
                self.out.tokens.push(Out::Comma);
                1
            }
            () => match self.respelt() {
                0 => self.xml(),
                taken => taken,
            },
        };
        self.position += skip;
        Some(skip > 0 || self.at(0) != Some(token))
    }

    /// The words of SQL/XML that are no expressions: names of elements and attributes, and how to parse.
    fn xml(&mut self) -> usize {
        let name = self.kind(1).is_some_and(TokenKind::is_name);
        let inside = self.previous().is_some_and(|p| p.kind == TokenKind::LeftParen);
        let of = |word: &str| {
            inside
                && self
                    .position
                    .checked_sub(2)
                    .and_then(|i| self.input.get(i))
                    .is_some_and(|token| text::is_word(*token, self.sql, word))
        };
        match () {
            () if name && self.word(0, "name") && (of("xmlelement") || of("xmlpi")) => {
                2 + usize::from(self.kind(2) == Some(TokenKind::Comma))
            }
            () if name && self.word(0, "as") && self.open.last() == Some(&Open::XmlNamed) => 2,
            () if (self.word(0, "document") || self.word(0, "content"))
                && (of("xmlparse") || of("xmlserialize")) =>
            {
                1
            }
            // A cast by another name: its type is looked at like any other.
            () if self.word(0, "xmlserialize") && self.kind(1) == Some(TokenKind::LeftParen) => {
                self.out.tokens.push(Out::make_keyword("CAST"));
                1
            }
            () => 0,
        }
    }

    /// SEARCH .. SET and CYCLE .. USING after a common table expression: nothing but names.
    fn search_or_cycle(&self) -> usize {
        if self.previous().is_none_or(|token| !matches!(token.kind, TokenKind::RightParen | TokenKind::Word))
        {
            return 0;
        }
        let search = self.word(0, "search");
        let mut at = 1;
        if search {
            if !(self.word(1, "depth") || self.word(1, "breadth"))
                || !self.word(2, "first")
                || !self.word(3, "by")
            {
                return 0;
            }
            at = 4;
        }
        let name = |at: usize| self.kind(at).is_some_and(TokenKind::is_name);
        while name(at) && self.kind(at + 1) == Some(TokenKind::Comma) {
            at += 2;
        }
        if !(name(at) && self.word(at + 1, "set") && name(at + 2)) {
            return 0;
        }
        at += 3;
        match () {
            () if search => at,
            () if self.word(at, "using") && name(at + 1) => at + 2,
            () => 0,
        }
    }

    /// `OPERATOR(schema.op)` becomes `op`.
    fn operator(&mut self) -> Option<()> {
        let mut at = 2;
        let mut schema = None;
        while self.kind(at + 1) == Some(TokenKind::Dot) {
            if schema.is_some() {
                return None;
            }
            schema = Some(text::name(self.at(at)?, self.sql)?);
            at += 2;
        }
        let token = self.at(at).filter(|token| token.kind == TokenKind::Operator)?;
        if self.kind(at + 1) != Some(TokenKind::RightParen) {
            return None;
        }
        self.push_operator(token, schema)?;
        self.position += at + 2;
        Some(())
    }

    /// `U&"..."` and `U&'...'`, with the UESCAPE clause that may follow.
    fn unicode(&mut self, token: Token) -> Option<()> {
        let mut escape = '\\';
        let mut length = 1;
        if self.word(1, "uescape") {
            let value = text::string(self.at(2)?, self.sql)?;
            let mut characters = value.chars();
            escape = characters.next()?;
            if characters.next().is_some() {
                return None;
            }
            length = 3;
        }
        if token.kind == TokenKind::UnicodeWord {
            let name = text::unicode_name(token, self.sql, escape)?;
            if self.kind(length) == Some(TokenKind::LeftParen) {
                self.out.called.push(name.clone());
            }
            self.out.tokens.push(quoted(&name));
        } else {
            self.out.tokens.push(Out::SingleQuotedString(String::new()));
        }
        self.position += length;
        Some(())
    }

    fn plain(&mut self, token: Token) -> Option<()> {
        let text = self.sql.get(token.start..token.end)?;
        let out = match token.kind {
            TokenKind::Word => {
                self.note_call(token)?;
                // Names that the server would cut are refused here, once and for all.
                text::name(token, self.sql)?;
                Out::make_word(text, None)
            }
            TokenKind::QuotedWord => {
                self.note_call(token)?;
                quoted(&text::name(token, self.sql)?)
            }
            kind if kind.is_string() && self.bounds_frame() => {
                self.out.tokens.push(Out::LParen);
                Out::SingleQuotedString(String::new())
            }
            kind if kind.is_string() => {
                let value = text::string(token, self.sql);
                Out::SingleQuotedString(value.map(String::from).unwrap_or_default())
            }
            TokenKind::BitString | TokenKind::HexString => Out::HexStringLiteral(String::new()),
            TokenKind::Integer | TokenKind::Numeric => Out::Number(text.replace('_', ""), false),
            TokenKind::Parameter => Out::Placeholder(text.to_owned()),
            TokenKind::Operator => return self.push_operator(token, None),
            TokenKind::Comma if self.open.last() == Some(&Open::RowsFrom) => {
                self.out.tokens.push(Out::make_keyword("CROSS"));
                Out::make_keyword("JOIN")
            }
            TokenKind::Comma => Out::Comma,
            TokenKind::Dot => Out::Period,
            TokenKind::LeftParen => {
                let named = ["xmlforest", "xmlattributes"].iter().any(|word| self.previous_word(word));
                self.open.push(if named { Open::XmlNamed } else { Open::Other });
                Out::LParen
            }
            TokenKind::RightParen => {
                if self.open.pop() == Some(Open::RowsFrom)
                    && self.word(1, "with")
                    && self.word(2, "ordinality")
                {
                    self.position += 2;
                }
                Out::RParen
            }
            TokenKind::LeftBracket => {
                // What is in an array needs no word to be one.
                if self
                    .previous()
                    .is_some_and(|p| matches!(p.kind, TokenKind::LeftBracket | TokenKind::Comma))
                {
                    self.out.tokens.push(Out::make_keyword("ARRAY"));
                }
                self.open.push(Open::Other);
                Out::LBracket
            }
            TokenKind::RightBracket => {
                self.open.pop();
                Out::RBracket
            }
            TokenKind::Colon => Out::Colon,
            TokenKind::Typecast => Out::DoubleColon,
            TokenKind::ColonEquals => Out::Assignment,
            TokenKind::EqualsGreater => Out::RArrow,
            _ => return None,
        };
        self.out.tokens.push(out);
        Some(())
    }

    fn push_operator(&mut self, token: Token, schema: Option<Box<str>>) -> Option<()> {
        let text = self.sql.get(token.start..token.end)?;
        let name = if text == "!=" { "<>" } else { text };
        // `*` is as often a wildcard; multiplication is always PostgreSQL's own unless someone redefines it, and
        // the catalogue is asked about that whether it occurs or not.
        let builtin = matches!(schema.as_deref(), None | Some("pg_catalog")) && builtin::is_operator(name);
        let name = Name { schema, name: name.into(), builtin };
        if !self.out.operators.contains(&name) {
            self.out.operators.push(name);
        }
        // What is compared with all of an array is the same by any operator.
        let arrays = ["any", "some", "all"].iter().any(|word| self.word(1, word));
        let all = arrays && self.kind(2) == Some(TokenKind::LeftParen);
        self.out.tokens.push(if all { Out::Eq } else { operator(text) });
        Some(())
    }

    /// Notes a name before an opening parenthesis, unless syntax explains it.
    fn note_call(&mut self, token: Token) -> Option<()> {
        if self.kind(1) != Some(TokenKind::LeftParen) {
            return Some(());
        }
        let name = text::name(token, self.sql)?;
        let qualified = self.previous().is_some_and(|p| p.kind == TokenKind::Dot);
        let explained = token.kind == TokenKind::Word
            && !qualified
            && (is_never_a_function(&name)
                || match &*name {
                    "by" => ["order", "group", "partition"].iter().any(|word| self.previous_word(word)),
                    "over" | "filter" => self.previous().is_some_and(|p| p.kind == TokenKind::RightParen),
                    "sets" => self.previous_word("grouping"),
                    "materialized" => self.previous_word("as") || self.previous_word("not"),
                    "first" | "next" => self.previous_word("fetch"),
                    "zone" => self.previous_word("time"),
                    "bernoulli" | "system" => self.previous_word("tablesample"),
                    "like" | "ilike" => true,
                    "overlaps" => self.previous().is_some_and(|p| p.kind == TokenKind::RightParen),
                    "join" => {
                        ["left", "right", "full", "inner", "cross", "outer", "natural"]
                            .iter()
                            .any(|word| self.previous_word(word))
                            || self
                                .previous()
                                .is_some_and(|p| p.kind.is_name() || matches!(p.kind, TokenKind::RightParen))
                    }
                    _ => false,
                });
        if !explained {
            self.out.called.push(name);
        }
        Some(())
    }
}

fn quoted(name: &str) -> Out {
    Out::Word(Word {
        value: name.to_owned(),
        quote_style: Some('"'),
        keyword: sqlparser::keywords::Keyword::NoKeyword,
    })
}

/// Reserved words and those that may be no function names (`reserved_keyword` and `col_name_keyword` in gram.y), as
/// far as a parenthesis may follow them.
const NEVER_FUNCTIONS: &str = "all and any array as asymmetric between bigint bit boolean both case cast char \
    character coalesce dec decimal distinct else except exists extract fetch float for from greatest group grouping \
    having in int integer intersect interval lateral leading least limit national nchar normalize not nullif numeric \
    offset on only or overlay position precision real row select setof smallint some substring symmetric then time \
    timestamp to trailing treat trim union using values varchar when where with xmlattributes xmlconcat xmlelement \
    xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable";

fn is_never_a_function(word: &str) -> bool {
    NEVER_FUNCTIONS.split(' ').any(|never| never == word)
}

fn operator(text: &str) -> Out {
    match text {
        "=" => Out::Eq,
        "<>" | "!=" => Out::Neq,
        "<" => Out::Lt,
        ">" => Out::Gt,
        "<=" => Out::LtEq,
        ">=" => Out::GtEq,
        "+" => Out::Plus,
        "-" => Out::Minus,
        "*" => Out::Mul,
        "/" => Out::Div,
        "%" => Out::Mod,
        "^" => Out::Caret,
        "||" => Out::StringConcat,
        "&" => Out::Ampersand,
        "|" => Out::Pipe,
        "#" => Out::Sharp,
        "##" => Out::DoubleSharp,
        "~" => Out::Tilde,
        "~*" => Out::TildeAsterisk,
        "!~" => Out::ExclamationMarkTilde,
        "!~*" => Out::ExclamationMarkTildeAsterisk,
        "~~" => Out::DoubleTilde,
        "~~*" => Out::DoubleTildeAsterisk,
        "!~~" => Out::ExclamationMarkDoubleTilde,
        "!~~*" => Out::ExclamationMarkDoubleTildeAsterisk,
        "<<" => Out::ShiftLeft,
        ">>" => Out::ShiftRight,
        "&&" => Out::Overlap,
        "!!" => Out::DoubleExclamationMark,
        "@" => Out::AtSign,
        "^@" => Out::CaretAt,
        "|/" => Out::PGSquareRoot,
        "||/" => Out::PGCubeRoot,
        "->" => Out::Arrow,
        "->>" => Out::LongArrow,
        "#>" => Out::HashArrow,
        "#>>" => Out::HashLongArrow,
        "#-" => Out::HashMinus,
        "@>" => Out::AtArrow,
        "<@" => Out::ArrowAt,
        "@?" => Out::AtQuestion,
        "@@" => Out::AtAt,
        "@-@" => Out::AtDashAt,
        "?" => Out::Question,
        "?|" => Out::QuestionPipe,
        "?&" => Out::QuestionAnd,
        "?-" => Out::QuestionMarkDash,
        "?#" => Out::QuestionMarkSharp,
        "?-|" => Out::QuestionMarkDashVerticalBar,
        "?||" => Out::QuestionMarkDoubleVerticalBar,
        "<->" => Out::TwoWayArrow,
        "~=" => Out::TildeEqual,
        "&<" => Out::AmpersandLeftAngleBracket,
        "&>" => Out::AmpersandRightAngleBracket,
        "<^" => Out::LeftAngleBracketCaret,
        ">^" => Out::RightAngleBracketCaret,
        "<<|" => Out::ShiftLeftVerticalBar,
        "|>>" => Out::VerticalBarShiftRight,
        "&<|" => Out::AmpersandLeftAngleBracketVerticalBar,
        "|&>" => Out::VerticalBarAmpersandRightAngleBracket,
        other => Out::CustomBinaryOperator(other.to_owned()),
    }
}
