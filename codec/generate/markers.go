package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// markers are the "+name=value" lines of a comment, by name, in order.
type markers map[string][]string

func (m markers) has(name string) bool { _, ok := m[name]; return ok }

func (m markers) first(name string) string {
	if values := m[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func parseMarkers(doc *ast.CommentGroup) markers {
	found := markers{}
	if doc == nil {
		return found
	}
	for _, comment := range doc.List {
		for _, line := range strings.Split(comment.Text, "\n") {
			line = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "/*"))
			if name, ok := strings.CutPrefix(line, "+"); ok {
				name, value, _ := strings.Cut(name, "=")
				found[name] = append(found[name], strings.TrimSpace(value))
			}
		}
	}
	return found
}

// source is what reflection does not know about a package: markers and constants.
type source struct {
	types  map[string]markers            // of the type declaration
	fields map[string]map[string]markers // by type, then by Go field name
	consts map[string]string             // string constants by name
	enums  map[string][]string           // values of the string constants, by their type
}

// sources reads packages as they are needed.
type sources map[string]*source

func (s sources) of(pkg string) *source {
	if src, ok := s[pkg]; ok {
		return src
	}
	listed, err := exec.Command("go", "list", "-json=Dir,GoFiles", pkg).Output()
	if err != nil {
		log.Fatalf("go list %s: %v", pkg, err)
	}
	var found struct {
		Dir     string
		GoFiles []string
	}
	if err := json.Unmarshal(listed, &found); err != nil {
		log.Fatal(err)
	}
	src := &source{map[string]markers{}, map[string]map[string]markers{}, map[string]string{}, map[string][]string{}}
	for _, name := range found.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(found.Dir, name), nil, parser.ParseComments)
		if err != nil {
			log.Fatal(err)
		}
		src.read(file, s)
	}
	for _, values := range src.enums {
		sort.Strings(values)
	}
	s[pkg] = src
	return src
}

func (s *source) read(file *ast.File, all sources) {
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				doc := spec.Doc
				if doc == nil {
					doc = gen.Doc
				}
				s.readType(spec, parseMarkers(doc))
			case *ast.ValueSpec:
				if gen.Tok == token.CONST {
					s.readConst(spec, file, all)
				}
			}
		}
	}
}

func (s *source) readType(spec *ast.TypeSpec, own markers) {
	s.types[spec.Name.Name] = own
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	fields := map[string]markers{}
	for _, field := range structure.Fields.List {
		for _, name := range field.Names {
			fields[name.Name] = parseMarkers(field.Doc)
		}
		if len(field.Names) == 0 { // embedded: called like its type
			switch t := field.Type.(type) {
			case *ast.Ident:
				fields[t.Name] = parseMarkers(field.Doc)
			case *ast.SelectorExpr:
				fields[t.Sel.Name] = parseMarkers(field.Doc)
			}
		}
	}
	s.fields[spec.Name.Name] = fields
}

func (s *source) readConst(spec *ast.ValueSpec, file *ast.File, all sources) {
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			continue
		}
		kind, value := spec.Type, spec.Values[i]
		// Both `const X T = "v"` and `const X = T("v")`.
		if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 {
			kind, value = call.Fun, call.Args[0]
		}
		text, ok := constant(value, file, all)
		if !ok {
			continue
		}
		s.consts[name.Name] = text
		if kind, ok := kind.(*ast.Ident); ok {
			s.enums[kind.Name] = appendOnce(s.enums[kind.Name], text)
		}
	}
}

// constant is the string that an expression stands for: a literal, or a constant of another package.
func constant(value ast.Expr, file *ast.File, all sources) (string, bool) {
	switch value := value.(type) {
	case *ast.BasicLit:
		if value.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(value.Value)
		return text, err == nil
	case *ast.SelectorExpr:
		pkg, ok := value.X.(*ast.Ident)
		if !ok {
			return "", false
		}
		for _, imported := range file.Imports {
			path, err := strconv.Unquote(imported.Path.Value)
			if err == nil && (imported.Name != nil && imported.Name.Name == pkg.Name || imported.Name == nil && filepath.Base(path) == pkg.Name) {
				text, ok := all.of(path).consts[value.Sel.Name]
				return text, ok
			}
		}
	}
	return "", false
}

func appendOnce(list []string, value string) []string {
	for _, have := range list {
		if have == value {
			return list
		}
	}
	return append(list, value)
}
