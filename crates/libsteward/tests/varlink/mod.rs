//! Reads an interface description of varlink, as far as `io.steward` uses the language: types, methods and errors.

use std::collections::BTreeMap;

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    Bool,
    Int,
    Float,
    String,
    Array(Box<Type>),
    /// A type of the interface.
    Named(String),
}

/// A field of a type, a parameter of a method, or a figure of an error.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: String,
    /// It may be left out: `?`.
    pub optional: bool,
    pub holds: Type,
}

/// A type of the interface.
#[derive(Clone, Debug, PartialEq)]
pub enum Named {
    Struct(Vec<Field>),
    /// One of these words.
    Words(Vec<String>),
}

/// A method of the interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    pub parameters: Vec<Field>,
    pub reply: Vec<Field>,
}

/// All that is described.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interface {
    pub types: BTreeMap<String, Named>,
    pub methods: BTreeMap<String, Method>,
    pub errors: BTreeMap<String, Vec<Field>>,
}

impl Interface {
    /// Reads a description.
    ///
    /// # Panics
    /// Where it is none, with what stands there.
    pub fn read(text: &str) -> Interface {
        let mut reader = Reader { tokens: tokens(text), place: 0 };
        let mut interface = Interface::default();
        reader.expect("interface");
        reader.next();
        while let Some(what) = reader.tokens.get(reader.place).cloned() {
            reader.place += 1;
            let name = reader.next();
            let is_new = match what.as_str() {
                "type" => interface.types.insert(name.clone(), reader.named()).is_none(),
                "error" => interface.errors.insert(name.clone(), reader.fields()).is_none(),
                "method" => {
                    let parameters = reader.fields();
                    reader.expect("->");
                    let reply = reader.fields();
                    interface.methods.insert(name.clone(), Method { parameters, reply }).is_none()
                }
                other => panic!("{other:?} {name} is no type, method or error"),
            };
            assert!(is_new, "{name} is described twice");
        }
        interface
    }
}

/// The words and signs, without comments.
fn tokens(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or(""));
    let mut text = lines.collect::<Vec<_>>().join(" ").replace("->", " -> ").replace("[]", " [] ");
    for sign in ["(", ")", ",", ":", "?"] {
        text = text.replace(sign, &format!(" {sign} "));
    }
    text.split_whitespace().map(str::to_owned).collect()
}

struct Reader {
    tokens: Vec<String>,
    place: usize,
}

impl Reader {
    fn peek(&self) -> &str {
        self.tokens.get(self.place).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        assert!(!token.is_empty(), "the description ends too early");
        self.place += 1;
        token
    }

    fn expect(&mut self, wanted: &str) {
        let found = self.next();
        assert_eq!(found, wanted, "at {:?}", &self.tokens[self.place.saturating_sub(8)..self.place]);
    }

    /// A list in brackets.
    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let mut elements = Vec::new();
        self.expect("(");
        while self.peek() != ")" {
            elements.push(element(self));
            if self.peek() == "," {
                self.next();
            }
        }
        self.expect(")");
        elements
    }

    fn fields(&mut self) -> Vec<Field> {
        self.list(|reader| {
            let name = reader.next();
            reader.expect(":");
            let optional = reader.peek() == "?";
            reader.place += usize::from(optional);
            Field { name, optional, holds: reader.holds() }
        })
    }

    fn holds(&mut self) -> Type {
        match self.next().as_str() {
            "[]" => Type::Array(Box::new(self.holds())),
            "bool" => Type::Bool,
            "int" => Type::Int,
            "float" => Type::Float,
            "string" => Type::String,
            name => Type::Named(name.to_owned()),
        }
    }

    fn named(&mut self) -> Named {
        if self.tokens.get(self.place + 2).is_some_and(|token| token == ":") {
            Named::Struct(self.fields())
        } else {
            Named::Words(self.list(Reader::next))
        }
    }
}
