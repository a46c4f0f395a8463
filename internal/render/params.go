package render

import "encoding/json"

// Params makes the data under .Params: all kwargs by name, and the positional
// arguments that have a name. Numbers keep their text. A parameter that is given
// twice, or that has no exact text, is [ErrValue].
func Params(names []string, args []json.RawMessage, kwargs map[string]json.RawMessage) (map[string]any, error) {
	texts, err := ParamTexts(names, args, kwargs)
	if err != nil {
		return nil, err
	}
	params := make(map[string]any, len(texts))
	for name, text := range texts {
		v, err := Value(text)
		if err != nil {
			return nil, problemf(ErrValue, "parameter %q: %s", name, err)
		}
		params[name] = v
	}
	return params, nil
}

// ParamTexts is Params before decoding, as a fingerprint wants it.
func ParamTexts(names []string, args []json.RawMessage, kwargs map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	params := make(map[string]json.RawMessage, len(names)+len(kwargs))
	for name, text := range kwargs {
		params[name] = text
	}
	for i, name := range names[:min(len(names), len(args))] {
		if _, taken := params[name]; taken {
			return nil, problemf(ErrValue, "parameter %q is given by position and by name", name)
		}
		params[name] = args[i]
	}
	return params, nil
}
