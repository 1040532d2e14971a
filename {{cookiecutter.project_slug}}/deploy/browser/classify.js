// Loads the bundle, checks it with its golden images, and shows the classes of the image that one chooses.

const RUNTIME = new URL("node_modules/onnxruntime-web/dist/", import.meta.url).href;
const BUNDLE = new URL("bundle/", import.meta.url).href;
const OUTPUTS = ["logits", "probabilities"];
const NUM_SHOWN = 8;

async function read(path) {
  const response = await fetch(BUNDLE + path);
  if (!response.ok) throw new Error(`bundle/${path} is not there (${response.status})`);
  return response;
}

// Pillow's BILINEAR along the rows: a triangle as wide as the reduction, with weights of 22 bits. The canvas has none.
// The result is transposed, so that two calls resize an image.
function resizeRows({ height, width, channels, pixels }, size) {
  const resized = new Uint8Array(size * height * channels);
  const scale = width / size, support = Math.max(scale, 1);
  for (let out = 0; out < size; out++) {
    const center = (out + 0.5) * scale;
    const first = Math.max(0, Math.trunc(center - support + 0.5));
    const length = Math.min(width, Math.trunc(center + support + 0.5)) - first;
    const shares = Array.from({ length }, (_, i) => Math.max(0, 1 - Math.abs(first + i + 0.5 - center) / support));
    const sum = shares.reduce((a, b) => a + b);
    const weights = Int32Array.from(shares, (share) => Math.floor((share / sum) * 2 ** 22 + 0.5));
    for (let y = 0; y < height; y++) {
      for (let c = 0; c < channels; c++) {
        let value = 2 ** 21;
        for (let i = 0; i < length; i++) value += weights[i] * pixels[(y * width + first + i) * channels + c];
        resized[(out * height + y) * channels + c] = Math.min(255, value >> 22);
      }
    }
  }
  return { height: size, width: height, channels, pixels: resized };
}

function fit(image, policy) {
  const [height, width] = policy.image_size;
  const scales = [height / image.height, width / image.width];
  const scale = { squash: () => 0, crop: Math.max, pad: Math.min }[policy.resize](...scales);
  const size = (side, all) => (scale ? Math.max(1, Math.trunc(side * scale + 0.5)) : all);
  const scaled = resizeRows(resizeRows(image, size(image.width, width)), size(image.height, height));
  const top = Math.trunc((height - scaled.height) / 2), left = Math.trunc((width - scaled.width) / 2);
  const planes = new Uint8Array(policy.channels * height * width).fill(policy.background);
  for (let y = Math.max(0, top); y < Math.min(height, top + scaled.height); y++) {
    for (let x = Math.max(0, left); x < Math.min(width, left + scaled.width); x++) {
      const at = ((y - top) * scaled.width + x - left) * image.channels;
      for (let c = 0; c < policy.channels; c++) planes[(c * height + y) * width + x] = scaled.pixels[at + c];
    }
  }
  return planes;
}

// RGBA (opaque) or grey pixels [height, width, channels], on the background.
async function draw(file, policy) {
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none" }).catch(() => {
    throw new Error("this browser can't decode it");
  });
  const { height, width } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.fillStyle = `rgb(${policy.background} ${policy.background} ${policy.background})`;
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  if (data[3] !== 255) throw new Error("it is too large for this browser");
  if (policy.channels === 3) return { height, width, channels: 4, pixels: data };
  const grey = (_, i) => (data[4 * i] * 19595 + data[4 * i + 1] * 38470 + data[4 * i + 2] * 7471 + 0x8000) >> 16;
  return { height, width, channels: 1, pixels: Uint8Array.from({ length: height * width }, grey) };
}

// uint8 [channels, height, width] of an image file.
async function decode(file, policy) {
  const image = await draw(file, policy);
  const [shorter, longer] = [image.height, image.width].sort((a, b) => a - b);
  if (longer > policy.max_aspect_ratio * shorter) throw new Error("it is too long and narrow for this model");
  return fit(image, policy);
}

// NumPy's file format, for uint8 arrays of one shape alone.
async function readPixels(path, shape) {
  const bytes = new Uint8Array(await (await read(path)).arrayBuffer());
  const start = bytes.indexOf(10) + 1;
  const header = new TextDecoder("latin1").decode(bytes.subarray(0, start));
  const wanted = ["NUMPY\x01", "'|u1', 'fortran_order': False", `'shape': (${shape.join(", ")})`];
  if (!wanted.every((part) => header.includes(part))) throw new Error(`${path} is not a uint8 array ${shape}`);
  return bytes.subarray(start);
}

class Model {
  constructor(ort, session, description) {
    Object.assign(this, { ort, session, ...description });
  }

  static async load() {
    const ort = await import(`${RUNTIME}ort.wasm.min.mjs`).catch(() => {
      throw new Error("onnxruntime-web is not there; run npm install beside this page");
    });
    Object.assign(ort.env.wasm, { wasmPaths: RUNTIME, numThreads: 1 });
    const description = await (await read("model.json")).json();
    const { format, decoding: { channels, rotate } } = description;
    if (format !== "onnx") throw new Error(`the bundle holds the format ${format}, browsers run onnx`);
    if (channels !== 1 && channels !== 3) throw new Error("browsers decode grey and colour images only");
    if (!rotate) throw new Error("browsers turn images as the camera noted, which this bundle asks not to do");
    const file = new Uint8Array(await (await read("model.onnx")).arrayBuffer());
    return new Model(ort, await ort.InferenceSession.create(file), description);
  }

  // uint8 [channels, height, width] to scores; a fixed batch is filled with the same image.
  async run(pixels) {
    const [batch, ...shape] = this.input.shape, num = batch === "batch" ? 1 : batch;
    const images = new Uint8Array(num * pixels.length);
    for (let i = 0; i < num; i++) images.set(pixels, i * pixels.length);
    const found = await this.session.run({ images: new this.ort.Tensor("uint8", images, [num, ...shape]) });
    return Object.fromEntries(OUTPUTS.map((name) => [name, [...found[name].data].slice(0, this.classes.length)]));
  }

  async classify(file) {
    return (await this.run(await decode(file, this.decoding))).probabilities;
  }

  chosen(scores) {
    const best = Math.max(...scores);
    return scores.map((score, i) => (this.task === "multiclass" ? i === scores.indexOf(best) : score >= 0.5));
  }

  // The number of golden images, or an error that says which one gets other scores.
  async check() {
    const golden = await (await read("golden/golden.json")).json();
    for (const image of golden.images) {
      const found = await this.run(await readPixels(`golden/${image.pixels}`, this.input.shape.slice(1)));
      const problem = `golden image ${image.file} gets other scores than where the model was exported: `;
      const same = OUTPUTS.every((name) => areClose(found[name], image[name], golden.tolerance));
      if (!same) throw new Error(`${problem}from its pixels the model computes something else`);
      const scores = await this.classify(await (await read(`golden/${image.file}`)).blob());
      const alike = areClose(scores, image.probabilities, golden.file_tolerance);
      if (!alike || String(this.chosen(scores)) !== String(this.chosen(image.probabilities)))
        throw new Error(`${problem}this browser decodes its file in another way`);
    }
    return golden.images.length;
  }
}

// Relative to scores above 1.
function areClose(ours, expected, tolerance) {
  const isClose = (score, i) => Math.abs(score - expected[i]) <= tolerance * Math.max(1, Math.abs(expected[i]));
  return ours.length === expected.length && ours.every(isClose);
}

const percent = (score) => `${(100 * score).toFixed(1)} %`;
const find = (selector) => document.querySelector(selector);
const answer = find("#answer"), preview = find("img");

function say(state, text) {
  document.body.dataset.state = state;
  find("#status").textContent = text;
}

// Fills the list, and returns the answer in words.
function showScores(model, scores) {
  const chosen = model.chosen(scores);
  const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]);
  find("ol").replaceChildren(...order.slice(0, NUM_SHOWN).map((i) => {
    const row = document.createElement("li"), number = document.createElement("span");
    row.classList.toggle("chosen", chosen[i]);
    row.style.setProperty("--score", scores[i].toFixed(6));
    number.textContent = percent(scores[i]);
    row.append(model.classes[i], number);
    return row;
  }));
  const rest = order.slice(NUM_SHOWN);
  find("#others").textContent = rest.length ? `and ${rest.length} more, at most ${percent(scores[rest[0]])} each` : "";
  const names = order.filter((i) => chosen[i]).map((i) => `${model.classes[i]} (${percent(scores[i])})`);
  return `Most likely: ${names.join(", ") || "none of the classes"}`;
}

async function choose(model, file) {
  if (!file || document.body.dataset.state === "busy") return;
  say("busy", `Classifying ${file.name} …`);
  try {
    const text = showScores(model, await model.classify(file));
    URL.revokeObjectURL(preview.src);
    preview.src = URL.createObjectURL(file);
    find("figcaption").textContent = file.name;
    answer.hidden = false;
    say("done", text);
  } catch (error) {
    answer.hidden = true;
    say("failed", `${file.name}: ${error.message}`);
  }
}

function listen(model) {
  const input = find("input");
  input.addEventListener("change", () => choose(model, input.files[0]).then(() => (input.value = "")));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    choose(model, event.dataTransfer.files[0]);
  });
}

try {
  say("checking", "Checking the model on this device …");
  const model = await Model.load();
  const num = await model.check();
  listen(model);
  find("#kinds").textContent = `${model.classes.length} classes`;
  say("ready", `Ready: ${num} golden images get the same scores here as where the model was exported.`);
} catch (error) {
  say("refused", `This page does not classify: ${error.message}.`);
}
