package config

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/tasks/webhook"
)

// webhook reads a request that is a task's handler.
func (r *taskReader) webhook(v *yaml.Node) {
	wc := &webhook.Config{Params: r.task.Config.Params}
	ok := r.block(v, "webhook.", r.path+".webhook", map[string]field{
		"url":     func(_, v *yaml.Node, path string) { wc.URL = r.value(v, "webhook.url", path) },
		"method":  oneOf(r.d, &wc.Method, webhook.Methods()...),
		"headers": func(_, v *yaml.Node, path string) { wc.Headers = r.headers(v, path) },
		"body":    func(_, v *yaml.Node, path string) { wc.Body = r.body(v, path) },
	})
	if !ok {
		return
	}
	if r.own["webhook.url"] == nil {
		r.errorf([]string{"webhook.url"}, "write for example url: https://host", "the key is missing")
	}
	for _, fe := range webhook.FieldErrors(wc.Validate()) {
		r.fieldError("webhook."+fe.Field, fe)
	}
	r.task.Webhook = wc
}

func (r *taskReader) headers(v *yaml.Node, path string) map[string]webhook.Value {
	headers := map[string]webhook.Value{}
	seen := map[string]string{}
	r.d.entries(v, path, func(k, v *yaml.Node, path string) {
		key := "webhook.headers." + k.Value
		r.own[key] = v
		headers[k.Value] = r.value(v, key, path)
		if first, twice := seen[strings.ToLower(k.Value)]; twice {
			r.errorf([]string{key}, "keep one of the two", "the header stands here already, as %s", first)
			return
		}
		seen[strings.ToLower(k.Value)] = k.Value
	})
	return headers
}

// body reads a text, which is sent as it is, or what becomes JSON.
func (r *taskReader) body(v *yaml.Node, path string) any {
	if isNull(v) {
		r.d.errorf(v, path, `write keys and values, a list or a text, such as "", or remove the key`, "want a body, got nothing")
		return nil
	}
	if v.Kind == yaml.ScalarNode {
		var text string
		r.d.text(&text)(nil, v, path)
		return text
	}
	before := len(r.d.problems)
	body := values{d: r.d, str: func(n *yaml.Node, path string) {
		if key := strings.TrimPrefix(path, r.path+"."); strings.Contains(n.Value, "{{") {
			r.own[key] = n
			r.template(key, n.Value, render.Text)
		}
	}}.read(v, path)
	r.told["webhook.body"] = r.told["webhook.body"] || len(r.d.problems) > before
	return body
}

// value reads a text, or the file or the variable in which a secret is.
func (r *taskReader) value(v *yaml.Node, key, path string) webhook.Value {
	if v.Kind != yaml.MappingNode {
		var text string
		r.d.word(&text)(nil, v, path)
		return webhook.Value{Text: text}
	}
	var file, variable, prefix string
	r.block(v, key+".", path, map[string]field{
		"file":   r.d.word(&file),
		"env":    r.d.word(&variable),
		"prefix": r.d.word(&prefix),
	})
	secret := ""
	switch {
	case r.settled(key+".file", key+".env"):
	case file != "" && variable != "":
		r.errorf([]string{key + ".env", key + ".file"}, "keep one of the two", "file is set as well")
	case file != "":
		secret = r.d.secretFile(r.own[key+".file"], path+".file", file, r.c.path(file), "the value")
	case variable != "":
		if secret, _ = r.lookup(variable); strings.TrimSpace(secret) == "" {
			r.errorf([]string{key + ".env"}, "set it, or name another", "the environment variable %s is not set", shown(variable))
		}
	case len(v.Content) == 0 || r.own[key+".prefix"] != nil:
		r.errorf([]string{key}, "write a text, or {file: PATH} or {env: NAME}", "want a value, got none")
	}
	if secret = strings.TrimSpace(secret); secret == "" {
		r.told[key] = true
	}
	return webhook.Value{Text: prefix + secret, Secret: true}
}

func (r *taskReader) lookup(variable string) (string, bool) {
	if r.env == nil {
		return "", false
	}
	return r.env(variable)
}
