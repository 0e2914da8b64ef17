//! The catalogue of mutants: every place of a source file that can be changed in one small way.
//!
//! Input: a file's text. Output: [`Site`]s. The operators are those of cargo-mutants (a body that
//! returns a default at once, operators swapped, a `!` removed, match arms and guards removed), and
//! also the removal of statements. Tests, constants and text for people are left out.

use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// One small change of the source.
#[derive(Clone)]
pub struct Site {
    /// Path of the file from the root of the repository.
    pub path: String,
    /// First line.
    pub line: usize,
    /// Name of the function around it.
    pub function: String,
    /// Short description of the change.
    pub what: String,
    /// Byte range of the replaced text.
    pub range: Range<usize>,
    /// Form of the new text.
    pub form: Form,
}

/// Form in which a change is put behind a switch; `on` stands for the expression that is true if
/// the mutant is on.
#[derive(Clone)]
pub enum Form {
    /// `(if on { this } else { the original })`
    Expression(String),
    /// `if on { this } else { the original }`
    Statement(String),
    /// `if on { return this; }` in an empty range
    Return(String),
    /// `if on || (the guard)`
    GuardPasses,
    /// `if !on && (the guard)`
    GuardFails,
    /// `if !on`, in an empty range after a pattern without a guard
    ArmRemoved,
}

impl Site {
    /// Returns the replacement of the original text; the expression `on` is true if this mutant is
    /// on.
    pub fn woven(&self, source: &str, on: &str) -> String {
        let original = &source[self.range.clone()];
        match &self.form {
            Form::Expression(new) => format!("(if {on} {{ {new} }} else {{ {original} }})"),
            Form::Statement(new) => format!("if {on} {{ {new} }} else {{ {original} }}"),
            Form::Return(value) => format!(" if {on} {{ return {value}; }} "),
            Form::GuardPasses => format!("{on} || ({original})"),
            Form::GuardFails => format!("!{on} && ({original})"),
            Form::ArmRemoved => format!(" if !{on}"),
        }
    }
}

/// All sites of a file.
pub fn sites(path: &str, source: &str) -> Result<Vec<Site>, String> {
    let file = syn::parse_file(source).map_err(|e| format!("{path}: {e}"))?;
    let mut finder = Finder { path, source, functions: Vec::new(), found: Vec::new() };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder<'a> {
    path: &'a str,
    source: &'a str,
    functions: Vec<String>,
    found: Vec<Site>,
}

/// Replacements of an operator.
fn swapped(operator: &str) -> &'static [&'static str] {
    match operator {
        "==" => &["!="],
        "!=" => &["=="],
        "<" => &["<=", ">"],
        "<=" => &["<", ">"],
        ">" => &[">=", "<"],
        ">=" => &[">", "<"],
        "&&" => &["||"],
        "||" => &["&&"],
        "+" => &["-", "*"],
        "-" => &["+", "/"],
        "*" => &["+", "/"],
        "/" => &["%", "*"],
        "%" => &["/", "+"],
        "&" => &["|"],
        "|" => &["&"],
        "^" => &["|"],
        "<<" => &[">>"],
        ">>" => &["<<"],
        "+=" => &["-="],
        "-=" => &["+="],
        "*=" | "/=" => &["+="],
        "|=" => &["&="],
        "&=" => &["|="],
        _ => &[],
    }
}

/// Values that a function of this return type may return at once.
fn defaults(returned: &str) -> Vec<String> {
    let inside = |open: &str| returned.strip_prefix(open).and_then(|t| t.strip_suffix('>'));
    if let Some(ok) = inside("Result<").or(inside("io::Result<")).or((returned == "Result").then_some("()")) {
        let ok = ok.rsplit_once(", ").filter(|(_, e)| e.ends_with("Error")).map_or(ok, |(ok, _)| ok);
        return defaults(ok).into_iter().map(|v| format!("Ok({v})")).collect();
    }
    if let Some(some) = inside("Option<") {
        let some = defaults(some).into_iter().map(|v| format!("Some({v})"));
        return std::iter::once("None".to_string()).chain(some).collect();
    }
    if let Some(ready) = inside("Poll<") {
        return defaults(ready).into_iter().map(|v| format!("std::task::Poll::Ready({v})")).collect();
    }
    let fixed: &[&str] = match returned {
        "" | "()" => &["()"],
        "bool" => &["true", "false"],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64" | "isize" => &["0", "1"],
        "Ordering" | "std::cmp::Ordering" => &["std::cmp::Ordering::Equal"],
        _ if returned.starts_with(['&', '!']) || returned.contains("impl ") => &[],
        _ => &["Default::default()"],
    };
    fixed.iter().map(|v| v.to_string()).collect()
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| match &a.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() != "not (loom)",
        _ => false,
    })
}

impl Finder<'_> {
    fn text(&self, range: Range<usize>) -> &str {
        &self.source[range]
    }

    fn add(&mut self, range: Range<usize>, what: String, form: Form) {
        let line = self.source[..range.start].matches('\n').count() + 1;
        let function = self.functions.join("::");
        self.found.push(Site { path: self.path.to_string(), line, function, what, range, form });
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block, attributes: &[syn::Attribute]) {
        if signature.constness.is_some() || is_test(attributes) {
            return;
        }
        self.functions.push(signature.ident.to_string());
        let returned = match &signature.output {
            syn::ReturnType::Default => String::new(),
            syn::ReturnType::Type(_, kind) => self.text(kind.span().byte_range()).to_string(),
        };
        let at = block.brace_token.span.open().byte_range().end;
        if !block.stmts.is_empty() {
            for value in defaults(&returned) {
                self.add(at..at, format!("returns {value} at once"), Form::Return(value));
            }
        }
        visit::visit_block(self, block);
        self.functions.pop();
    }

    /// Adds the sites of a binary operation in `range`, whose operator is in `operator`.
    fn operation(&mut self, range: Range<usize>, operator: Range<usize>, statement: bool) {
        let text = self.text(operator.clone()).to_string();
        for new in swapped(&text) {
            let whole = format!(
                "{}{new}{}",
                self.text(range.start..operator.start),
                self.text(operator.end..range.end)
            );
            let form = if statement { Form::Statement(whole) } else { Form::Expression(whole) };
            self.add(range.clone(), format!("`{text}` becomes `{new}`"), form);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let name = self.text(block.self_ty.span().byte_range()).to_string();
        let printed = block.trait_.as_ref().is_some_and(|(_, path, _)| {
            path.segments.last().is_some_and(|s| s.ident == "Debug" || s.ident == "Display")
        });
        if !printed && !is_test(&block.attrs) {
            self.functions.push(name);
            visit::visit_item_impl(self, block);
            self.functions.pop();
        }
    }

    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        self.function(&f.sig, &f.block, &f.attrs);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.function(&f.sig, &f.block, &f.attrs);
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        if let Some(block) = &f.default {
            self.function(&f.sig, block, &f.attrs);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if let syn::Stmt::Expr(expression, Some(_)) = statement {
            use syn::Expr::{Assign, Await, Binary, Call, MethodCall, Try};
            let range = statement.span().byte_range();
            match expression {
                Assign(_) | Await(_) | Call(_) | MethodCall(_) | Try(_) => {
                    let shown = self.text(range.clone()).split_whitespace().collect::<Vec<_>>().join(" ");
                    let shown: String = shown.chars().take(60).collect();
                    self.add(range, format!("without `{shown}`"), Form::Statement(String::new()));
                }
                // An assignment is handled as a statement, because it is no operand, needs no
                // parentheses and has its semicolon.
                Binary(b) if self.text(b.op.span().byte_range()).ends_with('=') => {
                    self.operation(range, b.op.span().byte_range(), true);
                }
                _ => {}
            }
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_binary(&mut self, b: &'ast syn::ExprBinary) {
        let operator = b.op.span().byte_range();
        let assigns = matches!(swapped(self.text(operator.clone())), [new] if new.ends_with('=') && new.len() == 2)
            && !matches!(b.op, syn::BinOp::Eq(_) | syn::BinOp::Ne(_));
        // A chain with `let` cannot be put in parentheses.
        if !assigns && !has_let(&b.left) && !has_let(&b.right) {
            self.operation(b.span().byte_range(), operator, false);
        }
        visit::visit_expr_binary(self, b);
    }

    fn visit_expr_unary(&mut self, u: &'ast syn::ExprUnary) {
        if matches!(u.op, syn::UnOp::Not(_)) {
            let without = self.text(u.expr.span().byte_range()).to_string();
            self.add(u.span().byte_range(), "without `!`".into(), Form::Expression(without));
        }
        visit::visit_expr_unary(self, u);
    }

    fn visit_expr_match(&mut self, m: &'ast syn::ExprMatch) {
        let has_rest = m.arms.iter().any(|a| matches!(a.pat, syn::Pat::Wild(_)) && a.guard.is_none());
        for arm in &m.arms {
            let pattern = arm.pat.span().byte_range();
            let shown = self.text(pattern.clone()).to_string();
            match &arm.guard {
                Some((_, guard)) if !has_let(guard) => {
                    let range = guard.span().byte_range();
                    self.add(range.clone(), format!("the guard of `{shown}` passes"), Form::GuardPasses);
                    self.add(range, format!("the guard of `{shown}` fails"), Form::GuardFails);
                }
                None if has_rest && !matches!(arm.pat, syn::Pat::Wild(_)) => {
                    self.add(
                        pattern.end..pattern.end,
                        format!("without the arm `{shown}`"),
                        Form::ArmRemoved,
                    );
                }
                _ => {}
            }
        }
        visit::visit_expr_match(self, m);
    }
}

/// True if an operand is, or contains, a `let` of a chain.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(b) if matches!(b.op, syn::BinOp::And(_)) => has_let(&b.left) || has_let(&b.right),
        _ => false,
    }
}
