// Types of the pipelines for tasks other than text generation. Names are those of transformers.js.

import type { Tensor } from "../tensor.ts";
import type { PairAdapterMethods } from "../training/adapter-methods.ts";
import type { AudioTextToTextPipeline, ImageTextToTextPipeline } from "./asking.ts";
import type { CallOptions, Calls, PipelineBase } from "./base-types.ts";
import type { TextToImagePipeline } from "./drawing.ts";
import type {
  DocumentAnswer,
  GeneratedText,
  ImageToTextOptions,
  PictureText,
  PictureTextOptions,
  SpeechOptions,
  SpeechResult,
  Text2TextOptions,
  TranslationOptions,
} from "./generation-types.ts";
import type { MaskPrompts, OpenPicture } from "./open-pictures.ts";
import type { ImageInput, RawImage } from "./pictures.ts";
import type { VisualQuestionAnsweringPipeline } from "./questions.ts";
import type { Streams } from "./sound-streams.ts";
import type {
  AudioToAudioPipeline,
  SpeakerDiarizationPipeline,
  SpeakerVerificationPipeline,
} from "./sound-types.ts";
import type { SoundInput } from "./sounds.ts";
import type { TextToSpeechPipeline } from "./speaking.ts";
import type { IndexMethods } from "./vectors.ts";

export type * from "./generation-types.ts";
export type { MaskPrompts, OpenPicture, PromptedMasks } from "./open-pictures.ts";
export type * from "./sound-types.ts";
export type { CallOptions, PipelineBase };

/** Options for the tokenizer. */
export interface TokenizerOptions {
  /** Cut texts to the length that the model takes. Default: true. */
  truncation?: boolean;
  /** Most tokens of a text, if the model takes more. */
  max_length?: number;
  /** Has no effect: each text runs alone, so nothing is padded. */
  padding?: boolean;
  /** Default: true. */
  add_special_tokens?: boolean;
}

/** Options of feature-extraction. */
export interface FeatureExtractionOptions extends CallOptions, TokenizerOptions {
  /**
   * How the vectors of tokens become one: `none`, `mean`, `cls` (`first_token`), `last_token`
   * (`eos`), `max`, `mean_sqrt_len` or `weightedmean`. Default: as the model's own files say (for
   * sentence-transformers), else `none`.
   */
  pooling?: string;
  /** Divide vectors by their length. Default: as the model's own files say, else false. */
  normalize?: boolean;
  /** Keep so many numbers of each vector (matryoshka embeddings). Default: as its files say. */
  dimensions?: number;
  /** Put before each text. Default: the default prompt of the model's own files. */
  prompt?: string;
  /** Name of a prompt in the model's own files. */
  prompt_name?: string;
  /** Pack the signs of a vector, eight to a byte. Default: false. */
  quantize?: boolean;
  /** Bytes of packed signs: int8 or uint8; or vectors as they are: the default without bits. */
  precision?: "float32" | "binary" | "ubinary";
}

/** A label with its score. */
export interface LabelScore {
  label: string;
  score: number;
}

/** Options of text-classification. */
export interface TextClassificationOptions extends CallOptions, TokenizerOptions {
  /** How many labels; null: all. Default: 1. */
  top_k?: number | null;
  /** Default: as the model's config says. */
  function_to_apply?: "default" | "softmax" | "sigmoid" | "none";
}

/** Options of zero-shot-classification, also of pictures and sounds. */
export interface ZeroShotOptions extends CallOptions {
  /** With {} for the label. Default: "This example is {}.", or "This is a photo (sound) of {}." */
  hypothesis_template?: string;
  /** Whether several labels may be true; else their scores add up to 1. Default: false. */
  multi_label?: boolean;
}

/** The labels of a text and their scores, the highest first. */
export interface ZeroShotResult {
  sequence: string;
  labels: string[];
  scores: number[];
}

/** Options of token-classification. */
export interface TokenClassificationOptions extends CallOptions {
  /** Labels that are left out. Default: ["O"]. */
  ignore_labels?: string[];
  /** How tokens become entities. Default: "none". */
  aggregation_strategy?: "none" | "simple" | "first" | "average" | "max";
}

/** An entity: a token or, with an aggregation strategy, neighboring tokens of one label. */
export interface TokenEntity {
  /** Label of a token. */
  entity?: string;
  /** Label of a group. */
  entity_group?: string;
  score: number;
  /** Of the token. */
  index?: number;
  word: string;
  /** First character in the text. */
  start: number;
  /** After the last character in the text. */
  end: number;
}

/** Options of fill-mask. */
export interface FillMaskOptions extends CallOptions {
  /** How many tokens. Default: 5. */
  top_k?: number;
  /** Tokens to choose from. Default: all. */
  targets?: string | string[];
}

/** A token for the mask. */
export interface FillMaskResult {
  score: number;
  token: number;
  token_str: string;
  /** The text with the token. */
  sequence: string;
}

/** Options of text-ranking. */
export interface RankingOptions extends CallOptions {
  /** How many documents. Default: all. */
  top_k?: number;
  /** Whether the results have the documents. Default: false. */
  return_documents?: boolean;
  /** Default: as the model's files say, else "sigmoid". */
  function_to_apply?: "default" | "sigmoid" | "none";
  /** Put before the query; of language models the instruction. */
  prompt?: string;
  /** Name of a prompt in the model's own files. */
  prompt_name?: string;
  /** Of query and document in tokens. Default: what the model takes. */
  max_length?: number;
}

/** A document with its score. */
export interface RankedDocument {
  /** Its place in the list. */
  corpus_id: number;
  score: number;
  text?: string;
}

/** Options of question-answering. */
export interface QuestionAnsweringOptions extends CallOptions {
  /** How many answers. Default: 1. */
  top_k?: number;
  /** A long context is divided into parts that share as many tokens. Default: 128. */
  doc_stride?: number;
  /** Of an answer in tokens. Default: 15. */
  max_answer_len?: number;
  /** Of question and part of the context together. Default: 384, or what the model takes. */
  max_seq_len?: number;
  /** Whether "" may be the answer. Default: false. */
  handle_impossible_answer?: boolean;
  /** Extend answers to whole words. Default: true. */
  align_to_words?: boolean;
}

/** A part of the context that answers the question. */
export interface AnswerResult {
  answer: string;
  score: number;
  /** First character in the context. */
  start: number;
  /** After the last character in the context. */
  end: number;
}

/** Options of image-classification. */
export interface ClassificationOptions extends CallOptions {
  /** How many labels; null: all. Default: 5. */
  top_k?: number | null;
  /** Default: as the model's config says. */
  function_to_apply?: "default" | "softmax" | "sigmoid" | "none";
}

/** Options of voice-activity-detection, with the names of silero-vad. */
export interface VoiceActivityOptions extends CallOptions {
  /** Hz of arrays, and of the model: 16000 or 8000. Files are resampled. Default: 16000. */
  sampling_rate?: number;
  /** Speech begins where the probability reaches it. Default: 0.5. */
  threshold?: number;
  /** Speech may end below it. Default: `threshold` - 0.15, at least 0.01. */
  neg_threshold?: number;
  /** Shorter speech is dropped, except in streams. Default: 250. */
  min_speech_duration_ms?: number;
  /** Longer speech is divided, except in streams. Default: Infinity. */
  max_speech_duration_s?: number;
  /** Shorter silences do not divide speech. Default: 100. */
  min_silence_duration_ms?: number;
  /** What is added at both ends. Default: 30. */
  speech_pad_ms?: number;
  /** ms of a silence at which speech that is too long may be divided. Default: 98. */
  min_silence_at_max_speech?: number;
  /** Times in seconds rather than samples, except in streams. Default: false. */
  return_seconds?: boolean;
  /** Decimals of seconds. Default: 1. */
  time_resolution?: number;
}

/** Speech, in samples at `sampling_rate`, or in seconds. */
export interface VoiceSegment {
  start: number;
  end: number;
}

/** Speech begins or ends at a sample of a stream, counted at `sampling_rate`. */
export type VoiceEvent = { start: number } | { end: number };

/** Options of image-feature-extraction. */
export interface ImageFeatureExtractionOptions extends CallOptions {
  /**
   * Whether the result is one vector for each picture (the model's output `pooler_output`, or
   * `image_embeds`) instead of one for each patch. Default: false.
   */
  pool?: boolean | null;
}

/** Options of object-detection. */
export interface ObjectDetectionOptions extends CallOptions {
  /** Scores above it are kept. Default: 0.5, as in transformers; transformers.js has 0.9. */
  threshold?: number;
  /** Whether boxes are parts of the picture instead of pixels. Default: false. */
  percentage?: boolean;
  /** YOLO: of two boxes that overlap more, the lower score is left out. Default: 0.45. */
  iou?: number;
  /** YOLO: whether boxes of different classes suppress each other. Default: false. */
  agnostic_nms?: boolean;
}

/** An object in a picture. */
export interface DetectedObject {
  score: number;
  label: string;
  /** Whole pixels, or with `percentage` parts of the picture. */
  box: { xmin: number; ymin: number; xmax: number; ymax: number };
}

/** Options of image-segmentation. Defaults are those of transformers. */
export interface ImageSegmentationOptions extends CallOptions {
  /**
   * `semantic`: a mask for each class; `instance`, `panoptic`: for each object. Default: `panoptic`
   * for models with queries (DETR, MaskFormer, Mask2Former), else `semantic`.
   */
  subtask?: "semantic" | "instance" | "panoptic" | null;
  /** Scores of objects above it are kept. Default: 0.9; transformers.js has 0.5. */
  threshold?: number;
  /** A mask has the pixels with at least this probability. Default: 0.5. */
  mask_threshold?: number;
  /**
   * An object is left out if others cover it, so that a smaller part of it remains. Default: 0.5;
   * transformers.js has 0.8.
   */
  overlap_mask_area_threshold?: number;
  /** Numbers of classes whose objects become one, for `panoptic`. Default: none. */
  label_ids_to_fuse?: number[] | null;
  /** Height and width of the masks of each picture. Default: those of the picture. */
  target_sizes?: [height: number, width: number][] | null;
}

/** A part of a picture. */
export interface ImageSegment {
  /** Null for classes. */
  score: number | null;
  label: string;
  /** One channel: 255 in the part, else 0. */
  mask: RawImage;
}

/** The depth of each pixel of a picture. */
export interface DepthResult {
  /** float32 [height, width] of the picture. */
  predicted_depth: Tensor;
  /** One channel: the least depth is 0, the greatest 255. */
  depth: RawImage;
}

/** Options of keypoint-detection. */
export interface KeypointOptions extends CallOptions {
  /**
   * Where the people are: [left, top, width, height] of each in pixels, or the results of
   * object-detection. Default: one, which is the whole picture.
   */
  boxes?: readonly (readonly number[] | DetectedObject | DetectedObject["box"])[];
  /** Scores above it are kept. Default: all. */
  threshold?: number;
  /** Side of the Gaussian that heatmaps are blurred with. Default: 11. */
  kernel_size?: number;
}

/** The keypoints in a box. */
export interface KeypointResult {
  /** x and y in pixels. */
  keypoints: [number, number][];
  scores: number[];
  labels: string[];
  box: DetectedObject["box"];
}

/** Options of optical-character-recognition, with the names and defaults of RapidOCR. */
export interface OcrOptions extends CallOptions {
  /** Numbers of the detector's map above it are text. Default: 0.3. */
  thresh?: number;
  /** The mean of the map within a box is at least this. Default: 0.5. */
  box_thresh?: number;
  /** How far boxes are made larger. Default: 1.6. */
  unclip_ratio?: number;
  /** Lines with lower scores are left out. Default: 0.5. */
  text_score?: number;
  /** Whether texts that are upside down are turned. Default: true. */
  use_cls?: boolean;
}

/** A line of text. */
export interface OcrLine {
  text: string;
  score: number;
  /** Corners (x, y) in pixels, from the top left one on, clockwise. */
  box: [number, number][];
}

/** Options of a stream of automatic-speech-recognition; others are those of a call. */
export interface SpeechStreamOptions
  extends CallOptions,
    Omit<
      SpeechOptions,
      | "return_timestamps"
      | "return_language"
      | "chunk_length_s"
      | "stride_length_s"
      | "num_frames"
      | "force_full_sequences"
      | "streamer"
      | "onProgress"
      | "onSegment"
    > {
  /** Seconds of sound after which it is transcribed again, 0.1 to 10. Default: 1. */
  interval?: number;
  /**
   * Whether the sound does not wait for its transcripts: where one takes longer than `interval`,
   * the next one is of the newest sound, and those between are left out. Default: true for
   * `microphone()` and a `MediaStream`, else false.
   */
  live?: boolean;
  /** Finds speech: silence is then not transcribed, and 0.7 s of it commit the text before. */
  vad?: VoiceActivityPipeline;
}

/** What is known of a stream of speech. */
export interface SpeechEvent {
  /** Text that is certain since the event before. All of it joined is the transcript. */
  committed: string;
  /** Text after it, which may change. */
  partial: string;
  /** Start and end of `committed` in seconds of the stream; null: there is none. */
  timestamp: [number, number] | null;
  /** Start and end of sound of a live stream that came too fast to be transcribed. */
  skipped?: [number, number];
}

/** As Calls, with labels in the second place. */
interface LabelCalls<Input, Options, One> {
  (input: Input, labels: string | string[], options?: Options): Promise<One>;
  (inputs: readonly Input[], labels: string | string[], options?: Options): Promise<One[]>;
  (inputs: AsyncIterable<Input>, labels: string | string[], options?: Options): AsyncIterable<One>;
}

/** Computes embeddings. Result: float32 [texts, size], or [texts, tokens, size] without pooling. */
export interface FeatureExtractionPipeline
  extends PipelineBase,
    IndexMethods,
    Calls<string, FeatureExtractionOptions, Tensor, Tensor> {}

/**
 * Classifies texts, or pairs of texts. Result of a text: a list of labels; of several texts: one
 * label each with `top_k: 1`, else a list each.
 */
export interface TextClassificationPipeline
  extends PipelineBase,
    Calls<
      string | { text: string; text_pair: string },
      TextClassificationOptions,
      LabelScore[],
      LabelScore[] | LabelScore[][]
    > {}

/** Classifies texts by any labels, with a model of natural language inference. */
export interface ZeroShotClassificationPipeline
  extends PipelineBase,
    LabelCalls<string, ZeroShotOptions, ZeroShotResult> {}

/** Finds entities, such as names, in texts. */
export interface TokenClassificationPipeline
  extends PipelineBase,
    Calls<string, TokenClassificationOptions, TokenEntity[]> {}

/** Fills masked tokens; a text with several gives a list for each. */
export interface FillMaskPipeline
  extends PipelineBase,
    Calls<string, FillMaskOptions, FillMaskResult[]> {}

/** Finds answers in a context. With `top_k` above 1 the result is a list. */
export interface QuestionAnsweringPipeline extends PipelineBase {
  (question: string, context: string, options?: QuestionAnsweringOptions): Promise<AnswerResult>;
  (
    questions: readonly string[],
    contexts: string | readonly string[],
    options?: QuestionAnsweringOptions,
  ): Promise<AnswerResult[]>;
}

/** Orders documents by how well they answer a query, the best first. */
export interface TextRankingPipeline extends PipelineBase {
  (
    query: string,
    documents: readonly string[],
    options?: RankingOptions,
  ): Promise<RankedDocument[]>;
  (
    input: { query: string; documents: readonly string[] },
    options?: RankingOptions,
  ): Promise<RankedDocument[]>;
  (
    inputs: readonly { query: string; documents: readonly string[] }[],
    options?: RankingOptions,
  ): Promise<RankedDocument[][]>;
}

/** What pipelines of pictures have. */
export interface ImagePipelineBase extends PipelineBase {
  /**
   * Makes the inputs of the model from a picture, as its preprocessor_config.json says.
   * @returns `pixel_values`, float32 [1, 3, height, width]; `pixel_mask`, int64 [1, height, width],
   *   if the model has it
   */
  processor(picture: ImageInput): Promise<Record<string, Tensor>>;
}

/** Classifies pictures. */
export interface ImageClassificationPipeline
  extends ImagePipelineBase,
    Calls<ImageInput, ClassificationOptions, LabelScore[]> {}

/** Classifies pictures by any labels, the likeliest first, with CLIP or SigLIP. */
export interface ZeroShotImageClassificationPipeline
  extends ImagePipelineBase,
    LabelCalls<ImageInput, Omit<ZeroShotOptions, "multi_label">, LabelScore[]> {}

/** Classifies sounds. */
export interface AudioClassificationPipeline
  extends PipelineBase,
    Calls<SoundInput, ClassificationOptions, LabelScore[]> {}

/** Classifies sounds by any labels, the likeliest first, with CLAP. */
export interface ZeroShotAudioClassificationPipeline
  extends PipelineBase,
    LabelCalls<SoundInput, Omit<ZeroShotOptions, "multi_label">, LabelScore[]> {}

/** Finds speech. */
export interface VoiceActivityPipeline
  extends PipelineBase,
    Calls<SoundInput, VoiceActivityOptions, VoiceSegment[]>,
    Streams<VoiceActivityOptions, VoiceEvent> {}

/**
 * Computes features of pictures. Result: float32 [pictures, patches, size], with `pool`
 * [pictures, size].
 */
export interface ImageFeatureExtractionPipeline
  extends ImagePipelineBase,
    Calls<ImageInput, ImageFeatureExtractionOptions, Tensor, Tensor> {}

/** Finds objects in pictures: DETR, YOLOS, RT-DETR, D-FINE, YOLO v8 and later. */
export interface ObjectDetectionPipeline
  extends ImagePipelineBase,
    Calls<ImageInput, ObjectDetectionOptions, DetectedObject[]> {}

/** Finds the parts of pictures: SegFormer, DETR, MaskFormer and others. */
export interface ImageSegmentationPipeline
  extends ImagePipelineBase,
    Calls<ImageInput, ImageSegmentationOptions, ImageSegment[]> {}

/** Makes the background of pictures transparent. Result: RGBA. */
export interface BackgroundRemovalPipeline
  extends ImagePipelineBase,
    Calls<ImageInput, CallOptions, RawImage> {}

/** Estimates the depth of each pixel of pictures. */
export interface DepthEstimationPipeline
  extends ImagePipelineBase,
    Calls<ImageInput, CallOptions, DepthResult> {}

/** Options of zero-shot-object-detection. */
export interface ZeroShotObjectDetectionOptions extends CallOptions {
  /** Scores above it are kept. Default: 0.1. */
  threshold?: number;
  /** The same, by its name in Grounding DINO. */
  box_threshold?: number;
  /** How many objects. Default: all. */
  top_k?: number | null;
  /** Whether boxes are parts of the picture instead of pixels. Default: false. */
  percentage?: boolean;
}

/** Finds objects by any labels: OWL-ViT, OWLv2. The highest score comes first. */
export interface ZeroShotObjectDetectionPipeline extends ImagePipelineBase {
  (
    image: ImageInput,
    candidate_labels: string | string[],
    options?: ZeroShotObjectDetectionOptions,
  ): Promise<DetectedObject[]>;
  (
    images: ImageInput[],
    candidate_labels: string | string[],
    options?: ZeroShotObjectDetectionOptions,
  ): Promise<DetectedObject[][]>;
}

/** Options of mask-generation. Without prompts the masks of everything are found. */
export interface MaskGenerationOptions extends MaskPrompts {
  /** Points that run together, at most 64. Default: 64. */
  points_per_batch?: number;
  /** Points of a side of the grid. Default: 32. */
  points_per_crop?: number;
  /** Find masks in crops of the picture, too: so many layers of them. Default: 0. */
  crops_n_layers?: number;
  /** How much crops overlap, as a part of the shorter side. Default: 512 / 1500. */
  crop_overlap_ratio?: number;
  /** A layer's grid has so many times fewer points on a side than the one before. Default: 1. */
  crop_n_points_downscale_factor?: number;
  /** Masks with a higher score are kept. Default: 0.88. */
  pred_iou_thresh?: number;
  /** Masks that change less with their threshold are kept. Default: 0.95. */
  stability_score_thresh?: number;
  /** By how much the threshold is changed for that. Default: 1. */
  stability_score_offset?: number;
  /** Of two boxes that overlap more, the one with the lower score is left out. Default: 0.7. */
  crops_nms_thresh?: number;
  /** Add run lengths, column by column. Default: false. */
  output_rle_mask?: boolean;
  /** Add boxes: left, top, right, bottom. Default: false. */
  output_bboxes_mask?: boolean;
}

/** The masks of everything in a picture, the highest score first; or those of prompts. */
export interface GeneratedMasks {
  /** Of everything: 255 in the mask. Of prompts: bool [objects, masks, height, width]. */
  masks: RawImage[] | Tensor;
  /** Of everything. */
  scores?: number[];
  rle_mask?: { size: [height: number, width: number]; counts: number[] }[];
  bounding_boxes?: [number, number, number, number][];
  /** Of prompts: [objects, masks]. */
  iou_scores?: Tensor;
  object_score_logits?: Tensor;
}

/** Masks of what points and boxes show, or of everything: SAM, SAM 2, EdgeTAM, SAM 3's tracker. */
export interface MaskGenerationPipeline
  extends ImagePipelineBase,
    Calls<ImageInput, MaskGenerationOptions, GeneratedMasks> {
  /** Shows the model a picture, for masks of several prompts. */
  open(image: ImageInput, options?: CallOptions): Promise<OpenPicture>;
}
/** Finds the joints of people: ViTPose. Result of a picture: one for each box. */
export interface KeypointDetectionPipeline
  extends ImagePipelineBase,
    Calls<ImageInput, KeypointOptions, KeypointResult[]> {}

/** Makes pictures of pictures: Swin2SR and others. */
export interface ImageToImagePipeline
  extends ImagePipelineBase,
    Calls<ImageInput, CallOptions, RawImage> {}

/** Reads the text in pictures: PP-OCR. Result of a picture: its lines in order. */
export interface OcrPipeline extends PipelineBase, Calls<ImageInput, OcrOptions, OcrLine[]> {}

/** Transcribes speech. Whisper learns from pairs, see {@link fineTune}. */
export interface SpeechRecognitionPipeline
  extends PipelineBase,
    PairAdapterMethods,
    Calls<SoundInput, SpeechOptions, SpeechResult>,
    Streams<SpeechStreamOptions, SpeechEvent> {}

/** Generates text from text. Result of a text: a list of num_return_sequences. */
export interface Text2TextPipeline<Name extends string, Options>
  extends PipelineBase,
    PairAdapterMethods,
    Calls<string, Options, GeneratedText<Name>[], GeneratedText<Name>[]> {}

/** Describes or reads pictures. Result of a picture: a list of num_return_sequences. */
export interface ImageToTextPipeline
  extends ImagePipelineBase,
    Calls<ImageInput, ImageToTextOptions, PictureText[]> {}

/**
 * Answers questions about pictures of documents: `pipe(picture, question)`. Models are Donut, and
 * those of image-text-to-text.
 */
export interface DocumentQuestionAnsweringPipeline extends ImagePipelineBase {
  (input: ImageInput, question: string, options?: PictureTextOptions): Promise<DocumentAnswer[]>;
  (
    inputs: readonly ImageInput[],
    question: string,
    options?: PictureTextOptions,
  ): Promise<DocumentAnswer[][]>;
}

/** Pipelines by the names of their tasks. */
export interface TaskPipelines {
  "text-to-image": TextToImagePipeline;
  "image-text-to-text": ImageTextToTextPipeline;
  "audio-text-to-text": AudioTextToTextPipeline;
  "visual-question-answering": VisualQuestionAnsweringPipeline;
  "text-to-speech": TextToSpeechPipeline;
  "text-to-audio": TextToSpeechPipeline;
  "feature-extraction": FeatureExtractionPipeline;
  embeddings: FeatureExtractionPipeline;
  "text-classification": TextClassificationPipeline;
  "sentiment-analysis": TextClassificationPipeline;
  "zero-shot-classification": ZeroShotClassificationPipeline;
  "token-classification": TokenClassificationPipeline;
  ner: TokenClassificationPipeline;
  "text-ranking": TextRankingPipeline;
  "fill-mask": FillMaskPipeline;
  "question-answering": QuestionAnsweringPipeline;
  "image-classification": ImageClassificationPipeline;
  "audio-classification": AudioClassificationPipeline;
  "voice-activity-detection": VoiceActivityPipeline;
  "speaker-verification": SpeakerVerificationPipeline;
  "speaker-diarization": SpeakerDiarizationPipeline;
  "audio-to-audio": AudioToAudioPipeline;
  "image-feature-extraction": ImageFeatureExtractionPipeline;
  "object-detection": ObjectDetectionPipeline;
  "image-segmentation": ImageSegmentationPipeline;
  "background-removal": BackgroundRemovalPipeline;
  "depth-estimation": DepthEstimationPipeline;
  "mask-generation": MaskGenerationPipeline;
  "image-to-image": ImageToImagePipeline;
  "optical-character-recognition": OcrPipeline;
  ocr: OcrPipeline;
  "keypoint-detection": KeypointDetectionPipeline;
  "zero-shot-image-classification": ZeroShotImageClassificationPipeline;
  "zero-shot-audio-classification": ZeroShotAudioClassificationPipeline;
  "zero-shot-object-detection": ZeroShotObjectDetectionPipeline;
  "automatic-speech-recognition": SpeechRecognitionPipeline;
  asr: SpeechRecognitionPipeline;
  "image-to-text": ImageToTextPipeline;
  "document-question-answering": DocumentQuestionAnsweringPipeline;
  translation: Text2TextPipeline<"translation", TranslationOptions>;
  summarization: Text2TextPipeline<"summary", Text2TextOptions>;
  "text2text-generation": Text2TextPipeline<"generated", Text2TextOptions>;
}
